"""Events in a SQLite file of their own, fed from the log: the source of truth, never discarded.

feed          records events on the event loop and feeds the store in the background
store         the synchronous store: feed, read, check
database      creates and opens the file, its checkpoint
rows          columns, bodies and checksums; statements: the SQL files
where_clause  filters as SQL
"""
