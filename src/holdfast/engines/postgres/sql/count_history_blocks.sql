-- How many blocks the largest partition of history has, and how many all have.
SELECT coalesce(max(d.blocks), 0)::bigint, coalesce(sum(d.blocks), 0)::bigint
FROM (
    SELECT pg_relation_size(i.inhrelid) / current_setting('block_size')::bigint AS blocks
    FROM pg_inherits AS i
    WHERE i.inhparent = 'holdfast.history'::regclass
) AS d
