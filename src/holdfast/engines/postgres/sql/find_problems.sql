-- Violated invariants, a sentence each.
SELECT format('job %%s of tenant %%s is in flight without a lease', j.id, j.tenant)
FROM holdfast.jobs AS j
WHERE j.state = 2 AND (j.token = 0 OR j.line <> 0 OR j.lease_until_us = 0)
UNION ALL
SELECT format('job %%s of tenant %%s is blocked and in a line', j.id, j.tenant)
FROM holdfast.jobs AS j
WHERE j.state = 0 AND j.line <> 0
UNION ALL
SELECT format('job %%s of tenant %%s is pending and in no line', j.id, j.tenant)
FROM holdfast.jobs AS j
LEFT JOIN holdfast.policies AS p ON p.queue = j.queue
WHERE j.state = 1 AND j.line = 0 AND (j.key IS NULL OR NOT coalesce(p.ordered, true))
    AND NOT EXISTS (
        SELECT FROM holdfast.fresh_keys AS f
        WHERE f.queue = j.queue AND f.tenant = j.tenant AND f.key = j.key
    )
UNION ALL
SELECT format('job %%s of tenant %%s is in a line that its queue does not have', j.id, j.tenant)
FROM holdfast.jobs AS j
LEFT JOIN holdfast.policies AS p ON p.queue = j.queue
WHERE j.line <> 0 AND j.line <> coalesce(p.line, 1)
UNION ALL
SELECT format('job %%s of tenant %%s is claimable, and not the first of its key', j.id, j.tenant)
FROM holdfast.jobs AS j
LEFT JOIN holdfast.policies AS p ON p.queue = j.queue
WHERE j.line <> 0 AND j.key IS NOT NULL AND coalesce(p.ordered, true)
    AND NOT EXISTS (
        SELECT FROM holdfast.fresh_keys AS f
        WHERE f.queue = j.queue AND f.tenant = j.tenant AND f.key = j.key
    )
    AND (
        EXISTS (
            SELECT FROM holdfast.jobs AS o
            WHERE o.tenant = j.tenant AND o.queue = j.queue AND o.key = j.key
                AND (o.state = 2 OR o.key_seq < j.key_seq)
        )
        OR EXISTS (
            SELECT FROM holdfast.dead AS d
            WHERE d.tenant = j.tenant AND d.queue = j.queue AND d.key = j.key
                AND d.state = 5 AND d.key_seq < j.key_seq
        )
    )
UNION ALL
SELECT format('job %%s of tenant %%s is the first of its key, and not claimable', j.id, j.tenant)
FROM holdfast.jobs AS j
LEFT JOIN holdfast.policies AS p ON p.queue = j.queue
WHERE j.line = 0 AND j.state = 1 AND j.key IS NOT NULL AND coalesce(p.ordered, true)
    AND NOT EXISTS (
        SELECT FROM holdfast.fresh_keys AS f
        WHERE f.queue = j.queue AND f.tenant = j.tenant AND f.key = j.key
    )
    AND NOT EXISTS (
        SELECT FROM holdfast.jobs AS o
        WHERE o.tenant = j.tenant AND o.queue = j.queue AND o.key = j.key
            AND (o.state = 2 OR o.key_seq < j.key_seq)
    )
    AND NOT EXISTS (
        SELECT FROM holdfast.dead AS d
        WHERE d.tenant = j.tenant AND d.queue = j.queue AND d.key = j.key
            AND d.state = 5 AND d.key_seq < j.key_seq
    )
UNION ALL
SELECT format('job %%s of tenant %%s is both dead and unfinished', j.id, j.tenant)
FROM holdfast.jobs AS j
JOIN holdfast.dead AS d ON d.tenant = j.tenant AND d.id = j.id
UNION ALL
SELECT format('job %%s of tenant %%s has dependents, and is not marked as tied', j.id, j.tenant)
FROM holdfast.jobs AS w
JOIN holdfast.jobs AS j ON j.tenant = w.tenant AND j.id = ANY (w.waiting_for)
WHERE w.waiting_for IS NOT NULL AND NOT j.tied
LIMIT 100
