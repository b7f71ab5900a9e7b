-- Lock the migrations of this schema until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.migrations', 0))
