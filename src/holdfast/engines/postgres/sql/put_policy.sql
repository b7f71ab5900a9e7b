-- Give a queue a policy; its rate and its turns start anew.
WITH fresh AS (
    DELETE FROM holdfast.turns AS t WHERE t.queue = %(queue)s::text
)
INSERT INTO holdfast.policies (queue, line, ordered, limited, policy, keep_payload)
VALUES (
    %(queue)s::text, %(line)s::smallint, %(ordered)s::boolean, %(limited)s::boolean,
    %(policy)s::bytea, %(keep_payload)s::boolean
)
ON CONFLICT (queue) DO UPDATE SET
    line = excluded.line,
    ordered = excluded.ordered,
    limited = excluded.limited,
    policy = excluded.policy,
    keep_payload = excluded.keep_payload,
    spent_until_us = 0
