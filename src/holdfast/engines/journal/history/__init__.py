"""Finished jobs, attempts, notes and the audit in one SQLite file, a projection of the log.

feed          records effects on the event loop and feeds the store in the background
store         the synchronous store: feed, forget, read
database      opens the file, its checkpoint, its errors
writer        what a batch of effects changes, and how it is written
aggregates    counts that are kept by differences: tallies, kinds, groups of dead letters
queries       pages, groups, histories; where_clause: filters as SQL
rows          columns, bodies and checksums; statements: the SQL files
check, dump   recount everything; export and import
bloom         tells quickly that an id is not in the store
"""
