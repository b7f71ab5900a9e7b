-- Register for notifications of work in these queues, for a while.
INSERT INTO holdfast.waiting (listener, until_us, queues)
VALUES (
    %(listener)s::text,
    coalesce(%(now_us)s::bigint, holdfast.now_us()) + %(for_us)s::bigint,
    %(queues)s::text[]
)
ON CONFLICT (listener) DO UPDATE SET until_us = excluded.until_us, queues = excluded.queues
