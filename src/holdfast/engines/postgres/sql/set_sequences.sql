-- Give nobody a place or a token again that was given before.
SELECT
    setval('holdfast.places', greatest(%(seq)s::bigint, p.last_value)),
    setval('holdfast.tokens', greatest(%(token)s::bigint, t.last_value))
FROM holdfast.places AS p CROSS JOIN holdfast.tokens AS t
