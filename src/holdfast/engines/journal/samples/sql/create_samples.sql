-- What each queue held at a moment, and what happened in the seconds before. tier: 0 a sample,
-- 1 a minute.
CREATE TABLE IF NOT EXISTS samples (
    tier INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    queue TEXT NOT NULL,
    pending INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    blocked INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    held INTEGER NOT NULL,
    oldest_age_seconds REAL NOT NULL,
    enqueued INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    died INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (tier, at_us, queue)
) STRICT, WITHOUT ROWID
