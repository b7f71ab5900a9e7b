-- The jobs of a projection, of all its generations, in the words of an outbox. What people have
-- cancelled or archived is not in it.
SELECT
    w.id,
    CASE w.status WHEN 'blocked' THEN 'pending' ELSE w.status END AS status,
    w.attempts, w.next_retry_at, w.error_reason, w.last_error, w.owner, w.lease_until,
    w.processing_started_at, w.created_at, w.processed_at, w.replay_count, w.last_replayed_at,
    w.last_replayed_by, w.last_replayed_reason
FROM holdfast.work AS w
WHERE w.status NOT IN ('cancelled', 'archived')
    AND (w.queue = %(projection)s OR w.queue ~ %(generations)s)
