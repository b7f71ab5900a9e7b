-- When the last sample was taken by any process, and how long it took.
SELECT l.at_us, l.cost_seconds FROM holdfast.last_sample AS l
