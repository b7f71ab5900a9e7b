-- For each queue: dead letters, how many died lately, and how many of all were made lately.
SELECT
    d.queue,
    count(*) FILTER (WHERE d.state = 5),
    count(*) FILTER (
        WHERE d.finished_at_us > %(from_us)s::bigint AND d.finished_at_us <= %(to_us)s::bigint
    ),
    count(*) FILTER (
        WHERE d.created_at_us > %(from_us)s::bigint AND d.created_at_us <= %(to_us)s::bigint
    )
FROM holdfast.dead AS d
GROUP BY d.queue
