-- Move the pending jobs of a queue to this line; if keys are ordered, only their heads.
UPDATE holdfast.jobs AS j
SET line = r.line
FROM (
    SELECT
        w.tenant,
        w.id,
        CASE
            WHEN w.key IS NULL OR NOT %(ordered)s::boolean THEN %(line)s::smallint
            WHEN EXISTS (
                SELECT FROM holdfast.jobs AS o
                WHERE o.tenant = w.tenant AND o.queue = w.queue AND o.key = w.key
                    AND (o.state = 2 OR o.key_seq < w.key_seq)
            ) OR EXISTS (
                SELECT FROM holdfast.dead AS d
                WHERE d.tenant = w.tenant AND d.queue = w.queue AND d.key = w.key
                    AND d.state = 5 AND d.key_seq < w.key_seq
            ) THEN 0
            ELSE %(line)s::smallint
        END AS line
    FROM holdfast.jobs AS w
    WHERE w.queue = %(queue)s::text AND w.state = 1
) AS r
WHERE j.tenant = r.tenant AND j.id = r.id AND j.state = 1 AND j.line <> r.line
