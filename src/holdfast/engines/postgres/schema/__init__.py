"""The tables on PostgreSQL: migrations, applying them, checking what is there."""
