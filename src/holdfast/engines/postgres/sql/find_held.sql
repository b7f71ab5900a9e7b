-- The jobs that this worker holds.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
WHERE j.state = 2 AND j.worker = %(worker)s::text
