-- Make the head of each of these keys claimable if it may be claimed, and no other job of them.
-- OFFSET 0 and ORDER BY … LIMIT 1: one look by an index for each key, whatever the planner knows.
WITH heads AS MATERIALIZED (
    SELECT
        k.tenant, k.queue, k.key, coalesce(p.line, 1) AS line, h.id AS head,
        h.state = 1
        AND NOT EXISTS (
            SELECT FROM holdfast.jobs AS f
            WHERE f.tenant = k.tenant AND f.queue = k.queue AND f.key = k.key
                -- The index of busy keys, not that of all jobs in flight.
                AND (f.line <> 0 OR f.state = 2) AND f.state + 0 = 2
            OFFSET 0
        )
        AND NOT coalesce((
            SELECT d.key_seq
            FROM holdfast.dead AS d
            WHERE d.tenant = k.tenant AND d.queue = k.queue AND d.key = k.key AND d.state = 5
            ORDER BY d.key_seq
            LIMIT 1
        ) < h.key_seq, false) AS claimable
    FROM unnest(%(tenants)s::text[], %(queues)s::text[], %(keys)s::text[]) AS k (tenant, queue, key)
    LEFT JOIN holdfast.policies AS p ON p.queue = k.queue
    CROSS JOIN LATERAL (
        SELECT j.id, j.state, j.key_seq
        FROM holdfast.jobs AS j
        WHERE j.tenant = k.tenant AND j.queue = k.queue AND j.key = k.key
        ORDER BY j.key_seq
        LIMIT 1
    ) AS h
    WHERE coalesce(p.ordered, true)
),
right_lines AS MATERIALIZED (
    SELECT h.tenant, h.head AS id, h.line FROM heads AS h WHERE h.claimable
    UNION ALL
    SELECT h.tenant, j.id, 0
    FROM heads AS h
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM holdfast.jobs AS j
        WHERE j.tenant = h.tenant AND j.queue = h.queue AND j.key = h.key
            AND (j.line <> 0 OR j.state = 2) AND j.line + 0 <> 0
        OFFSET 0
    ) AS j
    WHERE NOT (h.claimable AND j.id = h.head)
)
UPDATE holdfast.jobs AS j
SET line = r.line
FROM right_lines AS r
WHERE j.tenant = r.tenant AND j.id = r.id AND j.line <> r.line AND j.state = 1
