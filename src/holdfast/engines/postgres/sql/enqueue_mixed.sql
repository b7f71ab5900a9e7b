-- Insert simple jobs of any kinds: due now, in this order, created a microsecond apart.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
taken AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, max_attempts, priority, state, line, tenant, id, scope, queue,
        task, payload, estimated_seconds, max_processing_seconds
    )
    SELECT
        coalesce(%(created_us)s::bigint, clock.now_us) + n.number - 1, clock.now_us,
        n.max_attempts, n.priority, 1, coalesce(p.line, 1), n.tenant, n.id, n.scope, n.queue, n.task, n.payload, n.estimated_seconds, n.max_processing_seconds
    FROM clock
    CROSS JOIN unnest(
        %(ids)s::text[], %(payloads)s::bytea[], %(max_attempts)s::int[],
        %(priority)s::smallint[], %(tenant)s::text[], %(scope)s::text[], %(queue)s::text[],
        %(task)s::text[], %(estimated_seconds)s::float8[], %(max_processing_seconds)s::float8[]
    ) WITH ORDINALITY AS n (
        id, payload, max_attempts, priority, tenant, scope, queue, task, estimated_seconds,
        max_processing_seconds, number
    )
    LEFT JOIN holdfast.policies AS p ON p.queue = n.queue
    ORDER BY n.number
    RETURNING queue
)
SELECT count(pg_notify(%(channel)s::text, q.queue))
FROM (SELECT DISTINCT t.queue FROM taken AS t) AS q
WHERE EXISTS (
    SELECT FROM holdfast.waiting AS w CROSS JOIN clock
    WHERE w.until_us > clock.now_us AND (q.queue = ANY (w.queues) OR '' = ANY (w.queues))
)
