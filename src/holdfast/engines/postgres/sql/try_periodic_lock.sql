-- Be the only one who does this periodic work, until the end of the transaction; or be told no.
SELECT pg_try_advisory_xact_lock(holdfast.lock_number('loop/' || %(name)s::text))
