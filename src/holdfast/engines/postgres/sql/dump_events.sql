-- All events, by position.
SELECT
    -- include event_columns e
FROM holdfast.chronicle_events AS e
ORDER BY e.position
