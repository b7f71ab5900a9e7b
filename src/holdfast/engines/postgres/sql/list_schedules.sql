-- All schedules.
SELECT s.name, s.schedule FROM holdfast.schedules AS s ORDER BY s.name
