-- Record that this periodic work is done.
INSERT INTO holdfast.loops (name, ran_at_us)
VALUES (%(name)s::text, %(at_us)s::bigint)
ON CONFLICT (name) DO UPDATE SET ran_at_us = excluded.ran_at_us
