-- Record when a sample was taken, and how long it took.
INSERT INTO holdfast.last_sample (at_us, cost_seconds)
VALUES (%(at_us)s::bigint, %(cost_seconds)s::double precision)
ON CONFLICT (one) DO UPDATE SET at_us = excluded.at_us, cost_seconds = excluded.cost_seconds
