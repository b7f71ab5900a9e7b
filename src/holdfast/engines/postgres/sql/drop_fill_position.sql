-- Forget how far the rebuild of a generation has come.
DELETE FROM holdfast.fill_positions AS f
WHERE f.table_name = %(table_name)s::text AND f.generation = %(generation)s::int
