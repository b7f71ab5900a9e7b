-- The rights that this user lacks, of those that are needed on each table, view and sequence.
SELECT c.relname::text, array_agg(n.right ORDER BY n.place)
FROM unnest(%(names)s::text[], %(rights)s::text[]) WITH ORDINALITY AS n (name, "right", place)
JOIN pg_class AS c ON c.relname = n.name
JOIN pg_namespace AS s ON s.oid = c.relnamespace AND s.nspname = %(schema)s
-- CASE, because the planner may check the right before it knows what this is.
WHERE NOT CASE c.relkind
    WHEN 'S' THEN has_sequence_privilege(c.oid, n.right)
    ELSE has_table_privilege(c.oid, n.right)
END
GROUP BY c.relname
ORDER BY 1
