-- A table or view of any owner: its kind, comment, columns with types, key and indexes.
SELECT
    c.relkind::text,
    obj_description(c.oid, 'pg_class'),
    ARRAY(
        SELECT a.attname::text FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    ),
    ARRAY(
        SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    ),
    ARRAY(
        SELECT a.attname::text
        FROM pg_index AS i
        CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary
        ORDER BY k.place
    ),
    ARRAY(
        SELECT x.relname::text FROM pg_index AS i
        JOIN pg_class AS x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid
    )
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text AND c.relname = %(name)s::text
