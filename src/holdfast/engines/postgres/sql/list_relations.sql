-- The tables of a schema whose name begins with this, and their comments.
SELECT c.relname::text, obj_description(c.oid, 'pg_class')
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text
    AND starts_with(c.relname::text, %(prefix)s::text)
    AND c.relkind = 'r'
