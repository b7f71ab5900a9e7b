-- How many events a filter finds.
SELECT count(*)
FROM holdfast.chronicle_events AS e
WHERE true
    -- include event_filter e
    -- include reach e
