-- A page of events by position, beyond this one.
SELECT
    -- include event_columns e
FROM holdfast.chronicle_events AS e
WHERE (%(after)s::bigint IS NULL OR e.position {beyond} %(after)s::bigint)
    -- include event_filter e
    -- include reach e
ORDER BY e.{by} {order}
LIMIT %(limit)s::int
