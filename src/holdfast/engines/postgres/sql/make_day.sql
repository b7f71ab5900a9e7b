-- Create the partition of history for the day so many days from now; return whether it is new, or
-- NULL if a lock is in the way.
SELECT holdfast.make_day(
    (coalesce(%(now_us)s::bigint, holdfast.now_us()) / 86400000000 + %(days)s::int) * 86400000000
)
