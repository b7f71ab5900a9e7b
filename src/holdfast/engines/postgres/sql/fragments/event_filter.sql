-- Only events that a filter finds.
AND (%(event_ids)s::text[] IS NULL OR t.event_id = ANY (%(event_ids)s::text[]::uuid[]))
AND (%(event_types)s::text[] IS NULL OR t.event_type = ANY (%(event_types)s::text[]))
AND (%(tenant)s::text IS NULL OR t.tenant = %(tenant)s::text)
AND (%(scope)s::text IS NULL OR starts_with(t.scope || '/', %(scope)s::text || '/'))
AND (%(key)s::text IS NULL OR t.key = %(key)s::text)
AND (%(entity_type)s::text IS NULL OR t.entity_type = %(entity_type)s::text)
AND (%(entity_id)s::text IS NULL OR t.entity_id = %(entity_id)s::text)
AND (%(actor_type)s::text IS NULL OR t.actor_type = %(actor_type)s::text)
AND (%(actor_id)s::text IS NULL OR t.actor_id = %(actor_id)s::text)
AND (%(request_id)s::text IS NULL OR coalesce(t.request_id, '') = %(request_id)s::text)
AND (%(correlation_id)s::text IS NULL OR coalesce(t.correlation_id, '') = %(correlation_id)s::text)
AND (%(occurred_from_us)s::bigint IS NULL
    OR t.occurred_at >= holdfast.time_of(%(occurred_from_us)s::bigint))
AND (%(occurred_to_us)s::bigint IS NULL
    OR t.occurred_at <= holdfast.time_of(%(occurred_to_us)s::bigint))
AND (%(fanout_before)s::bigint IS NULL OR t.fanout_version < %(fanout_before)s::bigint)
