-- Store a subscription, or change it.
INSERT INTO holdfast.subscriptions (name, queue, task, event_types, max_attempts, since_version)
VALUES (
    %(name)s::text, %(queue)s::text, %(task)s::text, %(event_types)s::text[],
    %(max_attempts)s::int, %(since_version)s::bigint
)
ON CONFLICT (name) DO UPDATE SET
    queue = excluded.queue,
    task = excluded.task,
    event_types = excluded.event_types,
    max_attempts = excluded.max_attempts,
    since_version = excluded.since_version
