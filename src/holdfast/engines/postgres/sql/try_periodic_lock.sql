-- Lock this periodic work until the end of the transaction; no row if another process has locked it.
-- Only who may write to this schema can, unlike an advisory lock.
SELECT l.name FROM holdfast.loops AS l WHERE l.name = %(name)s::text FOR UPDATE SKIP LOCKED
