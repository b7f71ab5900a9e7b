-- Samples of the queues, and what makes it cheap to count what happened lately. Older code goes on:
-- it takes no samples, and the attempts that fail under it are missing in the rates.
-- readable_from: 1

-- Expendable: a crash of the server empties it. tier: 0 a sample, 1 a minute.
CREATE UNLOGGED TABLE holdfast.samples (
    tier smallint NOT NULL,
    at_us bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    pending bigint NOT NULL,
    in_flight bigint NOT NULL,
    blocked bigint NOT NULL,
    dead bigint NOT NULL,
    held bigint NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    enqueued bigint NOT NULL,
    completed bigint NOT NULL,
    retried bigint NOT NULL,
    died bigint NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (tier, at_us, queue)
);

-- When the last sample was taken, and how long it took.
CREATE UNLOGGED TABLE holdfast.last_sample (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    at_us bigint NOT NULL,
    cost_seconds double precision NOT NULL
) WITH (fillfactor = 50);

-- History is written in the order of time, so a few ranges of blocks have what finished lately. Such
-- an index costs next to nothing to keep.
CREATE INDEX history_finished ON holdfast.history USING brin (finished_at_us)
    WITH (pages_per_range = 32, autosummarize = on);

-- Which attempts failed and were tried again, by time; NULL for others, and for those of older code.
ALTER TABLE holdfast.attempts
    ADD COLUMN queue text COLLATE "C",
    ADD COLUMN retried_at_us bigint;
CREATE INDEX attempts_retried ON holdfast.attempts (retried_at_us) WHERE retried_at_us IS NOT NULL;
