-- The migrations that were applied.
SELECT number, name, checksum, readable_from FROM holdfast.migrations ORDER BY number
