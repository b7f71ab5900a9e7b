-- Add, change or remove a record.
MERGE INTO holdfast.records AS r
USING (
    SELECT
        %(kind)s::text AS kind,
        %(name)s::text AS name,
        %(value)s::text AS value,
        %(expires_at_us)s::bigint AS expires_at_us
) AS n ON r.kind = n.kind AND r.name = n.name
WHEN MATCHED AND n.value IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET value = n.value, expires_at_us = n.expires_at_us
WHEN NOT MATCHED AND n.value IS NOT NULL
    THEN INSERT (kind, name, value, expires_at_us)
    VALUES (n.kind, n.name, n.value, n.expires_at_us)
