-- The rights that the engine needs and this user lacks. The audit and the events are append-only.
SELECT c.relname::text, array_agg(p.name ORDER BY p.place)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) WITH ORDINALITY AS p (name, place)
WHERE n.nspname = %(schema)s
    AND c.relname = ANY (%(names)s::text[])
    AND c.relkind IN ('r', 'p')
    AND NOT c.relispartition
    AND NOT (c.relname IN ('audit', 'chronicle_events') AND p.name IN ('UPDATE', 'DELETE'))
    AND NOT has_table_privilege(c.oid, p.name)
GROUP BY c.relname
UNION ALL
SELECT c.relname::text, ARRAY['USAGE']
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
-- CASE, because the planner may check the right before it knows that this is a sequence.
WHERE n.nspname = %(schema)s
    AND c.relname = ANY (%(names)s::text[])
    AND CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') ELSE false END
ORDER BY 1
