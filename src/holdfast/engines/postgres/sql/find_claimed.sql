-- The jobs that the claim with this nonce took, if any.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
WHERE j.state = 2 AND abs(j.nonce) = %(nonce)s::bigint AND j.worker = %(worker)s::text
