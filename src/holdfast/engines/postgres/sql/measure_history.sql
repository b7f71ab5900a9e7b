-- How many bytes a sample of the finished jobs has, and before when those finished that have to go so
-- that the others fit into this many. Each has about 300 bytes besides what is counted.
WITH sample AS MATERIALIZED (
    SELECT
        h.finished_at_us,
        300 + coalesce(pg_column_size(h.payload), 0) + coalesce(pg_column_size(h.result), 0)
        + coalesce(pg_column_size(h.failure), 0) + coalesce(pg_column_size(h.more), 0) AS bytes
    FROM holdfast.history AS h TABLESAMPLE SYSTEM (%(percent)s::float8)
        REPEATABLE (%(seed)s::float8)
),
newest AS (
    SELECT s.finished_at_us, sum(s.bytes) OVER (ORDER BY s.finished_at_us DESC) AS bytes
    FROM sample AS s
)
SELECT
    (SELECT coalesce(sum(s.bytes), 0)::bigint FROM sample AS s),
    (SELECT max(n.finished_at_us) + 1 FROM newest AS n WHERE n.bytes > %(kept_bytes)s::float8)
