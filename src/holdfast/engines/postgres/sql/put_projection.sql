-- Store what is known about a projection.
INSERT INTO holdfast.projections (name, state)
VALUES (%(name)s::text, %(state)s::jsonb)
ON CONFLICT (name) DO UPDATE SET state = excluded.state
