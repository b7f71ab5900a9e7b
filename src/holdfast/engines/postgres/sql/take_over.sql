-- Give everything that Holdfast has made in this schema to a role: relations of these names or with a
-- comment that begins so, their partitions, and functions of these names.
DO $do$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT
            CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind,
            c.oid::regclass::text AS name
        FROM pg_class AS c
        LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
        LEFT JOIN pg_class AS p ON p.oid = i.inhparent
        WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s)
            AND c.relkind IN ('r', 'p', 'v', 'S')
            AND (
                c.relname = ANY (%(relations)s::text[]) OR p.relname = ANY (%(relations)s::text[])
                OR starts_with(obj_description(c.oid, 'pg_class'), %(comment)s)
            )
            AND pg_get_userbyid(c.relowner) <> %(role)s
        UNION ALL
        SELECT 'FUNCTION', f.oid::regprocedure::text
        FROM pg_proc AS f
        WHERE f.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s)
            AND f.proname = ANY (%(functions)s::text[])
            AND pg_get_userbyid(f.proowner) <> %(role)s
    LOOP
        EXECUTE format('ALTER %%s %%s OWNER TO %%I', found.kind, found.name, %(role)s);
    END LOOP;
END $do$
