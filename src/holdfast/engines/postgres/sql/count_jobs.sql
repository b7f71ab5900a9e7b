-- How many jobs each queue has in each state.
SELECT c.queue, c.state, sum(c.count)::bigint
FROM (
    SELECT j.queue, j.state, count(*) AS count
    FROM holdfast.jobs AS j
    WHERE true
        -- include reach j
    GROUP BY j.queue, j.state
    UNION ALL
    SELECT d.queue, d.state, count(*)
    FROM holdfast.dead AS d
    WHERE true
        -- include reach d
    GROUP BY d.queue, d.state
    UNION ALL
    SELECT h.queue, h.state, count(*)
    FROM holdfast.history AS h
    WHERE h.finished_at_us
        >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
        -- include reach h
    GROUP BY h.queue, h.state
) AS c
GROUP BY c.queue, c.state
