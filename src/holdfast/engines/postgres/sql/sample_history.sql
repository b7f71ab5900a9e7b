-- For each queue: how many jobs completed lately, and how many of those that finished were made lately.
SELECT
    h.queue,
    count(*) FILTER (WHERE h.state = 3 AND h.finished_at_us <= %(to_us)s::bigint),
    count(*) FILTER (
        WHERE h.created_at_us > %(from_us)s::bigint AND h.created_at_us <= %(to_us)s::bigint
    )
FROM holdfast.history AS h
WHERE h.finished_at_us > %(from_us)s::bigint
GROUP BY h.queue
