-- The first due jobs of these watermarks.
SELECT d.*
FROM unnest(%(watermark_queues)s::text[], %(watermark_priorities)s::smallint[]) AS l (queue, priority)
CROSS JOIN LATERAL (
    SELECT
        j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
        j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
        j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
        j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
        j.more
    FROM holdfast.jobs AS j
    WHERE j.line = 1
        AND holdfast.queue_number(j.queue) = holdfast.queue_number(l.queue)
        AND j.queue = l.queue
        AND j.priority = l.priority
        AND j.run_at_us <= %(at_us)s::bigint
        AND (%(tasks)s::text[] IS NULL OR j.task = ANY (%(tasks)s::text[]))
        AND (j.expires_at_us IS NULL OR j.expires_at_us > %(at_us)s::bigint)
        AND (%(caller_tenant)s::text IS NULL OR j.tenant = %(caller_tenant)s::text)
        AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
            SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
            WHERE j.scope = s.scope OR starts_with(j.scope, s.scope || '/')
        ))
    ORDER BY j.run_at_us, j.seq
    LIMIT %(limit)s::int
) AS d
