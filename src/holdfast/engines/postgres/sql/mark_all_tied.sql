-- Mark every job on which another one depends: "complete" leaves it to the full settle.
UPDATE holdfast.jobs AS j
SET tied = true
FROM (
    SELECT DISTINCT w.tenant, n.id
    FROM holdfast.jobs AS w CROSS JOIN unnest(w.waiting_for) AS n (id)
    WHERE w.waiting_for IS NOT NULL
) AS r
WHERE j.tenant = r.tenant AND j.id = r.id AND NOT j.tied
