-- For each queue: unfinished jobs behind a dead one of their key. It starts from the dead letters: most
-- jobs have no key, and most keys no dead one.
SELECT d.queue, count(*)
FROM (
    SELECT e.tenant, e.queue, e.key, min(e.key_seq) AS key_seq
    FROM holdfast.dead AS e
    WHERE e.key IS NOT NULL AND e.state = 5
    GROUP BY e.tenant, e.queue, e.key
) AS d
JOIN holdfast.jobs AS j
    ON j.tenant = d.tenant AND j.queue = d.queue AND j.key = d.key AND j.key_seq > d.key_seq
LEFT JOIN holdfast.policies AS p ON p.queue = d.queue
WHERE coalesce(p.ordered, true)
GROUP BY d.queue
