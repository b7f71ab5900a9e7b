-- Events by their ids.
SELECT
    -- include event_columns e
FROM unnest(%(tenants)s::text[], %(event_ids)s::text[]) AS n (tenant, event_id)
JOIN holdfast.chronicle_events AS e ON e.event_id = n.event_id::uuid AND e.tenant = n.tenant
WHERE true
    -- include reach e
