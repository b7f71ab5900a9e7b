-- For each queue: how many attempts failed lately whose job is tried again.
SELECT a.queue, count(*)
FROM holdfast.attempts AS a
WHERE a.retried_at_us > %(from_us)s::bigint AND a.retried_at_us <= %(to_us)s::bigint
GROUP BY a.queue
