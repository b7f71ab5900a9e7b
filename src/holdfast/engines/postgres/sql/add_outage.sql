-- Add an outage of a dump.
INSERT INTO holdfast.outages (dependency, ended_at_us, outage)
VALUES (%(dependency)s::text, %(ended_at_us)s::bigint, %(outage)s::bytea)
