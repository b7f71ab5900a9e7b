-- Give a queue a policy; its rate and its turns start anew.
WITH fresh AS (
    DELETE FROM holdfast.turns AS t WHERE t.queue = %(queue)s::text
)
INSERT INTO holdfast.policies (queue, line, ordered, limited, policy)
VALUES (
    %(queue)s::text, %(line)s::smallint, %(ordered)s::boolean, %(limited)s::boolean,
    %(policy)s::bytea
)
ON CONFLICT (queue) DO UPDATE SET
    line = excluded.line,
    ordered = excluded.ordered,
    limited = excluded.limited,
    policy = excluded.policy,
    spent_until_us = 0
