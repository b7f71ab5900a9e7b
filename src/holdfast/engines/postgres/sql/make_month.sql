-- Create the partition of events for the month so many months from now; return whether it is new, or
-- NULL if a lock is in the way.
SELECT holdfast.make_month(coalesce(%(now_us)s::bigint, holdfast.now_us()), %(months)s::int)
