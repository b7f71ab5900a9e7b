-- Keep a sample, merged with what is there of its time.
INSERT INTO samples (
    tier, at_us, queue, pending, in_flight, blocked, dead, held, oldest_age_seconds,
    enqueued, completed, retried, died, seconds
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tier, at_us, queue) DO UPDATE SET
    pending = max(pending, excluded.pending),
    in_flight = max(in_flight, excluded.in_flight),
    blocked = max(blocked, excluded.blocked),
    dead = max(dead, excluded.dead),
    held = max(held, excluded.held),
    oldest_age_seconds = max(oldest_age_seconds, excluded.oldest_age_seconds),
    enqueued = enqueued + excluded.enqueued,
    completed = completed + excluded.completed,
    retried = retried + excluded.retried,
    died = died + excluded.died,
    seconds = seconds + excluded.seconds
