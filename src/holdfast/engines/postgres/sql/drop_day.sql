-- Drop a partition of history; return whether it is gone.
SELECT holdfast.drop_day(%(day)s::bigint::oid::regclass)
