-- Take new jobs that ask for nothing special: due now, in the order in which they are given. What all
-- of them have in common is given once.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
taken AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, max_attempts, priority, state, line, tenant, id, scope, queue,
        task, payload, estimated_seconds, max_processing_seconds
    )
    SELECT
        clock.now_us,
        clock.now_us,
        coalesce(n.max_attempts, (%(max_attempts)s::int[])[1]),
        coalesce(n.priority, (%(priorities)s::smallint[])[1]),
        1,
        coalesce(p.line, 1),
        coalesce(n.tenant, (%(tenants)s::text[])[1]),
        n.id,
        coalesce(n.scope, (%(scopes)s::text[])[1]),
        coalesce(n.queue, (%(queues)s::text[])[1]),
        coalesce(n.task, (%(tasks)s::text[])[1]),
        n.payload,
        n.estimated_seconds,
        n.max_processing_seconds
    FROM clock
    CROSS JOIN unnest(
        %(ids)s::text[], %(payloads)s::bytea[], %(max_attempts)s::int[],
        %(priorities)s::smallint[], %(tenants)s::text[], %(scopes)s::text[], %(queues)s::text[],
        %(tasks)s::text[], %(estimated_seconds)s::float8[], %(max_processing_seconds)s::float8[]
    ) WITH ORDINALITY AS n (
        id, payload, max_attempts, priority, tenant, scope, queue, task, estimated_seconds,
        max_processing_seconds, number
    )
    LEFT JOIN holdfast.policies AS p
        ON p.queue = coalesce(n.queue, (%(queues)s::text[])[1])
    ORDER BY n.number
    RETURNING queue
)
SELECT count(pg_notify(%(channel)s::text, q.queue))
FROM (SELECT DISTINCT t.queue FROM taken AS t) AS q
WHERE EXISTS (
    SELECT FROM holdfast.waiting AS w CROSS JOIN clock
    WHERE w.until_us > clock.now_us AND q.queue = ANY (w.queues)
)
