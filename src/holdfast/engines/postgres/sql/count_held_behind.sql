-- Dead letters that match a filter and hold back jobs of their key, and how many.
SELECT
    d.queue, d.task, d.error_reason, coalesce(d.status, 0), d.fingerprint, d.tenant, d.key,
    b.behind
FROM holdfast.dead AS d
LEFT JOIN holdfast.policies AS p ON p.queue = d.queue
CROSS JOIN LATERAL (
    SELECT count(*) AS behind
    FROM holdfast.jobs AS j
    WHERE j.tenant = d.tenant AND j.queue = d.queue AND j.key = d.key AND j.key_seq > d.key_seq
) AS b
WHERE d.state = 5
    AND d.key IS NOT NULL
    AND coalesce(p.ordered, true)
    AND b.behind > 0
    -- include filter d
    -- include finished_filter d
    -- include failure_filter d
