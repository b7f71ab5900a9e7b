-- The roles without a login that may change jobs, or only read them: what to grant to somebody. The
-- owner is not one of them.
SELECT array(
    SELECT r.rolname::text
    FROM pg_roles AS r
    CROSS JOIN pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = 'jobs'
        AND NOT r.rolcanlogin AND NOT r.rolsuper AND NOT starts_with(r.rolname::text, 'pg_')
        AND NOT pg_has_role(r.oid, c.relowner, 'MEMBER')
        AND has_table_privilege(r.oid, c.oid, 'SELECT')
        AND has_table_privilege(r.oid, c.oid, 'INSERT') = %(writing)s::boolean
    ORDER BY 1
)
