-- The subscriptions.
SELECT s.name, s.queue, s.task, s.event_types, s.max_attempts, s.since_version
FROM holdfast.subscriptions AS s
ORDER BY s.name
