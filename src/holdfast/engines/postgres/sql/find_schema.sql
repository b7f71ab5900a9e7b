-- The schema of this name, if it exists.
SELECT n.nspname::text FROM pg_namespace AS n WHERE n.nspname = %(schema)s::text
