-- Switch a flag, or remove it.
MERGE INTO holdfast.flags AS f
USING (SELECT %(name)s::text AS name, %(to)s::boolean AS on_) AS n ON f.name = n.name
WHEN MATCHED AND n.on_ IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET on_ = n.on_
WHEN NOT MATCHED AND n.on_ IS NOT NULL THEN INSERT (name, on_) VALUES (n.name, n.on_)
