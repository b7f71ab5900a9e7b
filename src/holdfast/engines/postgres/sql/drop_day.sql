-- Drop a partition of history; return NULL if a lock is in the way.
SELECT holdfast.drop_day(%(day)s::bigint::oid::regclass)
