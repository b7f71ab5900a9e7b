-- Insert simple jobs that differ in id and payload only: due now, in this order, created a
-- microsecond apart.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
taken AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, seq, max_attempts, priority, state, line, tenant, id, scope, queue,
        task, payload, estimated_seconds, max_processing_seconds
    )
    SELECT
        coalesce(%(created_us)s::bigint, (SELECT clock.now_us FROM clock)) + n.number - 1,
        (SELECT clock.now_us FROM clock),
        (SELECT holdfast.next_places()) + n.number - 1,
        %(max_attempts)s::int,
        %(priority)s::smallint,
        1,
        coalesce((SELECT p.line FROM holdfast.policies AS p WHERE p.queue = %(queue)s::text), 1),
        %(tenant)s::text,
        n.id,
        %(scope)s::text,
        %(queue)s::text,
        %(task)s::text,
        n.payload,
        %(estimated_seconds)s::float8,
        %(max_processing_seconds)s::float8
    FROM unnest(%(ids)s::text[], %(payloads)s::bytea[]) WITH ORDINALITY AS n (id, payload, number)
)
SELECT count(pg_notify(%(channel)s::text, %(queue)s::text))
FROM clock
WHERE EXISTS (
    SELECT FROM holdfast.waiting AS w
    WHERE w.until_us > clock.now_us AND (%(queue)s::text = ANY (w.queues) OR '' = ANY (w.queues))
)
