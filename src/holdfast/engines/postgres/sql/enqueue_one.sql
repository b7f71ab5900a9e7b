-- Insert one simple job, due now: the same as "enqueue", without arrays.
WITH taken AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, seq, max_attempts, priority, state, line, tenant, id, scope, queue,
        task, payload, estimated_seconds, max_processing_seconds
    )
    SELECT
        coalesce(%(created_us)s::bigint, clock.now_us),
        clock.now_us,
        holdfast.next_places(),
        %(max_attempts)s::int,
        %(priority)s::smallint,
        1,
        coalesce((SELECT p.line FROM holdfast.policies AS p WHERE p.queue = %(queue)s::text), 1),
        %(tenant)s::text,
        %(id)s::text,
        %(scope)s::text,
        %(queue)s::text,
        %(task)s::text,
        %(payload)s::bytea,
        %(estimated_seconds)s::float8,
        %(max_processing_seconds)s::float8
    FROM (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us) AS clock
)
SELECT pg_notify(%(channel)s::text, %(queue)s::text)
WHERE EXISTS (
    SELECT FROM holdfast.waiting AS w
    WHERE w.until_us > coalesce(%(now_us)s::bigint, holdfast.now_us())
        AND (%(queue)s::text = ANY (w.queues) OR '' = ANY (w.queues))
)
