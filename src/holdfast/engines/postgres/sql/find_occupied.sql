-- The tables that are not empty, before a load.
SELECT 'jobs' WHERE EXISTS (SELECT FROM holdfast.jobs)
UNION ALL
SELECT 'dead' WHERE EXISTS (SELECT FROM holdfast.dead)
UNION ALL
SELECT 'history' WHERE EXISTS (SELECT FROM holdfast.history)
UNION ALL
SELECT 'attempts' WHERE EXISTS (SELECT FROM holdfast.attempts)
UNION ALL
SELECT 'notes' WHERE EXISTS (SELECT FROM holdfast.notes)
UNION ALL
SELECT 'audit' WHERE EXISTS (SELECT FROM holdfast.audit)
UNION ALL
SELECT 'policies' WHERE EXISTS (SELECT FROM holdfast.policies)
UNION ALL
SELECT 'flags' WHERE EXISTS (SELECT FROM holdfast.flags)
UNION ALL
SELECT 'schedules' WHERE EXISTS (SELECT FROM holdfast.schedules)
UNION ALL
SELECT 'outages' WHERE EXISTS (SELECT FROM holdfast.outages)
UNION ALL
SELECT 'chronicle_events' WHERE EXISTS (SELECT FROM holdfast.chronicle_events)
UNION ALL
SELECT 'subscriptions' WHERE EXISTS (SELECT FROM holdfast.subscriptions)
UNION ALL
SELECT 'waiting' WHERE EXISTS (SELECT FROM holdfast.waiting AS w WHERE w.until_us > holdfast.now_us())
