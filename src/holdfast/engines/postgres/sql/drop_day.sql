-- Drop a partition of history; return NULL if that has to wait.
SELECT holdfast.drop_day(%(day)s::bigint::oid::regclass)
