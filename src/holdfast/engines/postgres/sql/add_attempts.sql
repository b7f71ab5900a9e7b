-- Record finished attempts.
INSERT INTO holdfast.attempts (tenant, id, made_us, token, attempt)
SELECT n.tenant, n.id, n.made_us, n.token, n.attempt
FROM unnest(
    %(tenants)s::text[], %(ids)s::text[], %(made_us)s::bigint[], %(tokens)s::bigint[],
    %(attempts)s::bytea[]
) AS n (tenant, id, made_us, token, attempt)
