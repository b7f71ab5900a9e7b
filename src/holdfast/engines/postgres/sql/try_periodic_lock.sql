-- Lock this periodic work until the end of the transaction; false if another process has the lock.
SELECT pg_try_advisory_xact_lock(holdfast.lock_number('loop/' || %(name)s::text))
