"""Periodic work on a PostgreSQL server: lease scans, pruning, LISTEN/NOTIFY, the periodic lock."""
