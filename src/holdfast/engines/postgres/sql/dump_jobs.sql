-- All unfinished jobs, in order.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
ORDER BY j.seq, j.tenant, j.id
