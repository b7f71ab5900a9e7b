-- Lock the jobs in flight under these tokens.
SELECT count(*)
FROM (
    SELECT
    FROM holdfast.jobs AS j
    JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
        ON j.tenant = o.tenant AND j.id = o.id AND j.token = o.token
    WHERE j.state + 0 = 2  -- + 0: use the primary key, not the index of jobs in flight
    ORDER BY j.tenant, j.id
    FOR UPDATE OF j
) AS l
