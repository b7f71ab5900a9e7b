"""How statements reach a PostgreSQL server: database, pool, pipeline, the caller's transaction."""
