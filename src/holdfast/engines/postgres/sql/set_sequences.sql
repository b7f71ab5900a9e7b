-- Set the sequences so that no number or token is assigned twice.
SELECT
    setval('holdfast.places', greatest(%(seq)s::bigint, p.last_value)),
    setval('holdfast.tokens', greatest(%(token)s::bigint, t.last_value))
FROM holdfast.places AS p CROSS JOIN holdfast.tokens AS t
