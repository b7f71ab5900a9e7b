-- Add, change or remove a schedule.
MERGE INTO holdfast.schedules AS s
USING (SELECT %(name)s::text AS name, %(schedule)s::bytea AS schedule) AS n ON s.name = n.name
WHEN MATCHED AND n.schedule IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET schedule = n.schedule
WHEN NOT MATCHED AND n.schedule IS NOT NULL
    THEN INSERT (name, schedule) VALUES (n.name, n.schedule)
