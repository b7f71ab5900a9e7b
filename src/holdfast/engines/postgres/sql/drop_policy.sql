-- Give a queue the default policy.
WITH fresh AS (
    DELETE FROM holdfast.turns AS t WHERE t.queue = %(queue)s::text
)
DELETE FROM holdfast.policies AS p WHERE p.queue = %(queue)s::text
