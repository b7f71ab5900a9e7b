-- Lock these keys until the end of the transaction, always in the same order.
SELECT count(pg_advisory_xact_lock(k.number))
FROM (
    SELECT DISTINCT holdfast.lock_number(n.name) AS number
    FROM unnest(%(names)s::text[]) AS n (name)
    ORDER BY 1
) AS k
