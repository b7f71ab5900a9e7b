-- The conditions of a filter that every table has columns for; NULL means any.
AND (%(ids)s::text[] IS NULL OR t.id = ANY (%(ids)s::text[]))
AND (%(tenant)s::text IS NULL OR t.tenant = %(tenant)s::text)
AND (
    %(scope)s::text IS NULL
    OR t.scope = %(scope)s::text
    OR starts_with(t.scope, %(scope)s::text || '/')
)
AND (%(states)s::smallint[] IS NULL OR t.state = ANY (%(states)s::smallint[]))
AND (%(keys)s::text[] IS NULL OR t.key = ANY (%(keys)s::text[]))
AND (%(replay_run)s::text IS NULL OR coalesce(t.replay_run, '') = %(replay_run)s::text)
AND (%(attempts_from)s::bigint IS NULL OR t.attempt >= %(attempts_from)s::bigint)
AND (%(attempts_to)s::bigint IS NULL OR t.attempt < %(attempts_to)s::bigint)
AND (%(created_from_us)s::bigint IS NULL OR t.created_at_us >= %(created_from_us)s::bigint)
AND (%(created_to_us)s::bigint IS NULL OR t.created_at_us < %(created_to_us)s::bigint)
AND (%(workers)s::text[] IS NULL OR EXISTS (
    SELECT FROM unnest(%(workers)s::text[]) AS w (name)
    WHERE t.worker = w.name OR right(t.worker, length(w.name) + 1) = '/' || w.name
))
AND (%(without_ids)s::text[] IS NULL OR t.id <> ALL (%(without_ids)s::text[]))
AND (%(without_tenants)s::text[] IS NULL OR t.tenant <> ALL (%(without_tenants)s::text[]))
AND (%(without_scopes)s::text[] IS NULL OR NOT EXISTS (
    SELECT FROM unnest(%(without_scopes)s::text[]) AS s (scope)
    WHERE t.scope = s.scope OR starts_with(t.scope, s.scope || '/')
))
AND (%(without_states)s::smallint[] IS NULL OR t.state <> ALL (%(without_states)s::smallint[]))
AND (
    %(without_keys)s::text[] IS NULL
    OR t.key IS NULL
    OR t.key <> ALL (%(without_keys)s::text[])
)
-- include work_filter t
-- include reach t
