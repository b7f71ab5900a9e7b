"""Read models: the tables that projections fill, in SQLite beside a journal or in PostgreSQL."""
