-- Claim those of these jobs that are still claimable, under these tokens.
UPDATE holdfast.jobs AS j
SET state = 2,
    line = 0,
    tied = true,
    attempt = j.attempt + 1,
    token = n.token,
    worker = %(worker)s::text,
    nonce = %(nonce)s::bigint,
    claimed_at_us = %(at_us)s::bigint,
    lease_until_us = n.lease_until_us
FROM unnest(
    %(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[], %(lease_until_us)s::bigint[]
) AS n (tenant, id, token, lease_until_us)
WHERE j.tenant = n.tenant AND j.id = n.id AND j.state = 1 AND j.line <> 0
RETURNING
    -- include job_columns j
