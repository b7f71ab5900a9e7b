-- Insert one simple job, due now: the same as "enqueue", without arrays. All names have a schema, so that
-- it can run with the search_path of a caller (see connection/caller_transaction.py).
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
        coalesce(
            (
                SELECT p.line FROM holdfast.policies AS p
                WHERE p.queue OPERATOR(pg_catalog.=) %(queue)s::pg_catalog.text
            ),
            1
        ),
        %(tenant)s::pg_catalog.text,
        %(id)s::pg_catalog.text,
        %(scope)s::pg_catalog.text,
        %(queue)s::pg_catalog.text,
        %(task)s::pg_catalog.text,
        %(payload)s::pg_catalog.bytea,
        %(estimated_seconds)s::pg_catalog.float8,
        %(max_processing_seconds)s::pg_catalog.float8
    FROM (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us) AS clock
)
SELECT pg_catalog.pg_notify(%(channel)s::pg_catalog.text, %(queue)s::pg_catalog.text)
WHERE EXISTS (
    SELECT FROM holdfast.waiting AS w
    WHERE w.until_us OPERATOR(pg_catalog.>) coalesce(%(now_us)s::bigint, holdfast.now_us())
        AND (
            %(queue)s::pg_catalog.text OPERATOR(pg_catalog.=) ANY (w.queues)
            OR ''::pg_catalog.text OPERATOR(pg_catalog.=) ANY (w.queues)
        )
)
