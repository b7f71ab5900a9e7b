-- How far the rebuild of a generation has come.
SELECT f.position::text
FROM holdfast.fill_positions AS f
WHERE f.table_name = %(table_name)s::text AND f.generation = %(generation)s::int
