-- Dead letters that meet every condition and hold up others of their key, and how many.
SELECT
    d.queue, d.error_reason, d.failure_class, d.fingerprint,
    d.finished_at_us / 3600000000 * 3600000000, d.tenant, d.key, b.behind
FROM holdfast.dead AS d
LEFT JOIN holdfast.policies AS p ON p.queue = d.queue
CROSS JOIN LATERAL (
    SELECT count(*) AS behind
    FROM holdfast.jobs AS j
    WHERE j.tenant = d.tenant AND j.queue = d.queue AND j.key = d.key AND j.key_seq > d.key_seq
) AS b
WHERE d.state = 5
    AND d.key IS NOT NULL
    AND coalesce(p.ordered, true)
    AND b.behind > 0
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
