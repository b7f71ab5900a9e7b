-- Make every pending job claimable; of ordered keys, only their heads.
UPDATE holdfast.jobs AS j
SET line = r.line
FROM (
    SELECT w.tenant, w.id, coalesce(p.line, 1) AS line
    FROM (
        SELECT
            k.tenant, k.id, k.queue, k.key, k.key_seq, k.state,
            k.key_seq = min(k.key_seq) OVER same_key AND NOT bool_or(k.state = 2) OVER same_key
                AS first
        FROM holdfast.jobs AS k
        WINDOW same_key AS (PARTITION BY k.tenant, k.queue, k.key)
    ) AS w
    LEFT JOIN holdfast.policies AS p ON p.queue = w.queue
    WHERE w.state = 1
        AND (
            w.key IS NULL
            OR NOT coalesce(p.ordered, true)
            OR (
                w.first
                AND NOT EXISTS (
                    SELECT FROM holdfast.dead AS d
                    WHERE d.tenant = w.tenant AND d.queue = w.queue AND d.key = w.key
                        AND d.state = 5 AND d.key_seq < w.key_seq
                )
            )
        )
) AS r
WHERE j.tenant = r.tenant AND j.id = r.id
