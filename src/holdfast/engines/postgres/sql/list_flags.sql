-- The flags that were switched.
SELECT f.name, f.on_ FROM holdfast.flags AS f ORDER BY f.name
