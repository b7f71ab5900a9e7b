"""A dump loaded into PostgreSQL tables."""
