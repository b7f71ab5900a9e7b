-- Make the head of each of these keys claimable if it may be claimed, and no other job of them.
WITH heads AS (
    SELECT
        k.tenant, k.queue, k.key, coalesce(p.line, 1) AS line,
        CASE
            WHEN h.state = 1
                AND NOT EXISTS (
                    SELECT FROM holdfast.jobs AS f
                    WHERE f.tenant = k.tenant AND f.queue = k.queue AND f.key = k.key
                        AND f.state = 2
                )
                AND NOT EXISTS (
                    SELECT FROM holdfast.dead AS d
                    WHERE d.tenant = k.tenant AND d.queue = k.queue AND d.key = k.key
                        AND d.state = 5 AND d.key_seq < h.key_seq
                )
                THEN h.id
        END AS id
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
right_lines AS (
    SELECT h.tenant, h.id, h.line FROM heads AS h WHERE h.id IS NOT NULL
    UNION ALL
    SELECT j.tenant, j.id, 0
    FROM heads AS h
    JOIN holdfast.jobs AS j
        ON j.tenant = h.tenant AND j.queue = h.queue AND j.key = h.key AND j.line <> 0
    WHERE j.id IS DISTINCT FROM h.id
)
UPDATE holdfast.jobs AS j
SET line = r.line
FROM right_lines AS r
WHERE j.tenant = r.tenant AND j.id = r.id AND j.line <> r.line AND j.state = 1
