-- Lock those of these keys that nobody has locked, until the end of the transaction; return the others.
SELECT k.name
FROM (
    SELECT DISTINCT n.name, holdfast.lock_number(n.name) AS number
    FROM unnest(%(names)s::text[]) AS n (name)
    ORDER BY 2
) AS k
WHERE NOT pg_try_advisory_xact_lock(k.number)
