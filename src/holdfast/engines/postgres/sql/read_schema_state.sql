-- The state of the server and of a schema.
SELECT
    pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on',
    current_setting('server_encoding'),
    current_user::text,
    n.oid IS NOT NULL,
    coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
    array(
        SELECT a.attname::text
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = n.oid AND c.relname = 'migrations'
            AND a.attnum > 0 AND NOT a.attisdropped
    ),
    coalesce((
        SELECT has_table_privilege(c.oid, 'SELECT')
        FROM pg_class AS c
        WHERE c.relnamespace = n.oid AND c.relname = 'migrations' AND c.relkind IN ('r', 'p')
    ), false),
    array(
        SELECT c.relname::text
        FROM pg_class AS c
        WHERE c.relnamespace = n.oid AND c.relname = ANY (%(names)s::text[])
        ORDER BY 1
    )
FROM (VALUES (1)) AS one (row)
LEFT JOIN pg_namespace AS n ON n.nspname = %(schema)s
