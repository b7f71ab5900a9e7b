-- Store how far the rebuild of a generation has come.
INSERT INTO holdfast.fill_positions (table_name, generation, position)
VALUES (%(table_name)s::text, %(generation)s::int, %(position)s::jsonb)
ON CONFLICT (table_name, generation) DO UPDATE SET position = excluded.position
