-- Jobs that meet every condition, the newest first, after this place.
SELECT f.*
FROM (
    (
        SELECT
            j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
            j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
            j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
            j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
            j.more
        FROM holdfast.jobs AS j
        WHERE %(unfinished)s::boolean
            AND (%(ids)s::text[] IS NULL OR j.id = ANY (%(ids)s::text[]))
            AND (%(tenant)s::text IS NULL OR j.tenant = %(tenant)s::text)
            AND (
                %(scope)s::text IS NULL
                OR j.scope = %(scope)s::text
                OR starts_with(j.scope, %(scope)s::text || '/')
            )
            AND (%(states)s::smallint[] IS NULL OR j.state = ANY (%(states)s::smallint[]))
            AND (%(queues)s::text[] IS NULL OR j.queue = ANY (%(queues)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR j.task = ANY (%(tasks)s::text[]))
            AND (%(keys)s::text[] IS NULL OR j.key = ANY (%(keys)s::text[]))
            AND (%(replay_run)s::text IS NULL OR j.replay_run = %(replay_run)s::text)
            AND (%(attempts_from)s::bigint IS NULL OR j.attempt >= %(attempts_from)s::bigint)
            AND (%(attempts_to)s::bigint IS NULL OR j.attempt < %(attempts_to)s::bigint)
            AND (%(created_from_us)s::bigint IS NULL OR j.created_at_us >= %(created_from_us)s::bigint)
            AND (%(created_to_us)s::bigint IS NULL OR j.created_at_us < %(created_to_us)s::bigint)
            AND (%(caller_tenant)s::text IS NULL OR j.tenant = %(caller_tenant)s::text)
            AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
                SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
                WHERE j.scope = s.scope OR starts_with(j.scope, s.scope || '/')
            ))
            AND (NOT %(failed)s::boolean OR j.failure IS NOT NULL)
            AND (
                %(after_us)s::bigint IS NULL
                OR (j.created_at_us, j.tenant, j.id)
                    < (%(after_us)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY j.created_at_us DESC, j.tenant DESC, j.id DESC
        LIMIT %(limit)s::int
    )
    UNION ALL
    (
        SELECT
            d.id, d.tenant, d.scope, d.queue, d.task, d.payload, d.priority, d.max_attempts,
            d.created_at_us, d.run_at_us, d.seq, d.state, d.attempt, d.expires_at_us, d.unique_key,
            d.estimated_seconds, d.max_processing_seconds, d.token, d.worker, d.claimed_at_us,
            d.lease_until_us, d.failure, d.finished_at_us, NULL::bytea, d.key, d.key_seq, d.waiting_for, d.stop_requested,
            d.more
        FROM holdfast.dead AS d
        WHERE %(dead)s::boolean
            AND (%(ids)s::text[] IS NULL OR d.id = ANY (%(ids)s::text[]))
            AND (%(tenant)s::text IS NULL OR d.tenant = %(tenant)s::text)
            AND (
                %(scope)s::text IS NULL
                OR d.scope = %(scope)s::text
                OR starts_with(d.scope, %(scope)s::text || '/')
            )
            AND (%(states)s::smallint[] IS NULL OR d.state = ANY (%(states)s::smallint[]))
            AND (%(queues)s::text[] IS NULL OR d.queue = ANY (%(queues)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR d.task = ANY (%(tasks)s::text[]))
            AND (%(keys)s::text[] IS NULL OR d.key = ANY (%(keys)s::text[]))
            AND (%(replay_run)s::text IS NULL OR d.replay_run = %(replay_run)s::text)
            AND (%(attempts_from)s::bigint IS NULL OR d.attempt >= %(attempts_from)s::bigint)
            AND (%(attempts_to)s::bigint IS NULL OR d.attempt < %(attempts_to)s::bigint)
            AND (%(created_from_us)s::bigint IS NULL OR d.created_at_us >= %(created_from_us)s::bigint)
            AND (%(created_to_us)s::bigint IS NULL OR d.created_at_us < %(created_to_us)s::bigint)
            AND (%(caller_tenant)s::text IS NULL OR d.tenant = %(caller_tenant)s::text)
            AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
                SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
                WHERE d.scope = s.scope OR starts_with(d.scope, s.scope || '/')
            ))
            AND (%(finished_from_us)s::bigint IS NULL OR d.finished_at_us >= %(finished_from_us)s::bigint)
            AND (%(finished_to_us)s::bigint IS NULL OR d.finished_at_us < %(finished_to_us)s::bigint)
            AND (%(error_reasons)s::text[] IS NULL OR d.error_reason = ANY (%(error_reasons)s::text[]))
            AND (%(classes)s::text[] IS NULL OR d.failure_class = ANY (%(classes)s::text[]))
            AND (%(fingerprint)s::text IS NULL OR d.fingerprint = %(fingerprint)s::text)
            AND (%(text)s::text IS NULL OR strpos(lower(d.message), lower(%(text)s::text COLLATE "C")) > 0)
            AND (
                %(after_us)s::bigint IS NULL
                OR (d.created_at_us, d.tenant, d.id)
                    < (%(after_us)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY d.created_at_us DESC, d.tenant DESC, d.id DESC
        LIMIT %(limit)s::int
    )
    UNION ALL
    (
        SELECT
            h.id, h.tenant, h.scope, h.queue, h.task, ''::bytea, h.priority, h.max_attempts,
            h.created_at_us, h.run_at_us, h.seq, h.state, h.attempt, h.expires_at_us, h.unique_key,
            h.estimated_seconds, h.max_processing_seconds, h.token, h.worker, h.claimed_at_us,
            h.lease_until_us, h.failure, h.finished_at_us, h.result, h.key, h.key_seq, h.waiting_for, h.stop_requested,
            h.more
        FROM holdfast.history AS h
        WHERE %(done)s::boolean
            AND h.finished_at_us
            >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
            AND (%(ids)s::text[] IS NULL OR h.id = ANY (%(ids)s::text[]))
            AND (%(tenant)s::text IS NULL OR h.tenant = %(tenant)s::text)
            AND (
                %(scope)s::text IS NULL
                OR h.scope = %(scope)s::text
                OR starts_with(h.scope, %(scope)s::text || '/')
            )
            AND (%(states)s::smallint[] IS NULL OR h.state = ANY (%(states)s::smallint[]))
            AND (%(queues)s::text[] IS NULL OR h.queue = ANY (%(queues)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR h.task = ANY (%(tasks)s::text[]))
            AND (%(keys)s::text[] IS NULL OR h.key = ANY (%(keys)s::text[]))
            AND (%(replay_run)s::text IS NULL OR h.replay_run = %(replay_run)s::text)
            AND (%(attempts_from)s::bigint IS NULL OR h.attempt >= %(attempts_from)s::bigint)
            AND (%(attempts_to)s::bigint IS NULL OR h.attempt < %(attempts_to)s::bigint)
            AND (%(created_from_us)s::bigint IS NULL OR h.created_at_us >= %(created_from_us)s::bigint)
            AND (%(created_to_us)s::bigint IS NULL OR h.created_at_us < %(created_to_us)s::bigint)
            AND (%(caller_tenant)s::text IS NULL OR h.tenant = %(caller_tenant)s::text)
            AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
                SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
                WHERE h.scope = s.scope OR starts_with(h.scope, s.scope || '/')
            ))
            AND (%(finished_from_us)s::bigint IS NULL OR h.finished_at_us >= %(finished_from_us)s::bigint)
            AND (%(finished_to_us)s::bigint IS NULL OR h.finished_at_us < %(finished_to_us)s::bigint)
            AND (NOT %(failed)s::boolean OR h.failure IS NOT NULL)
            AND (
                %(after_us)s::bigint IS NULL
                OR (h.created_at_us, h.tenant, h.id)
                    < (%(after_us)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY h.created_at_us DESC, h.tenant DESC, h.id DESC
        LIMIT %(limit)s::int
    )
) AS f
ORDER BY f.created_at_us DESC, f.tenant DESC, f.id DESC
LIMIT %(limit)s::int
