-- Groups of failures by task and HTTP status, and what people did with them. Older code goes on: what
-- dies by it has no status here, and is not counted in the life of its group.
-- readable_from: 1

ALTER TABLE holdfast.dead ADD COLUMN status integer;

-- Everything that a list of the groups needs, in its order: no dead letter itself is read.
CREATE INDEX dead_group ON holdfast.dead (
    queue, task, error_reason, status, fingerprint, tenant, scope, finished_at_us, failure_class
) WHERE state = 5;

-- What people did with a group, and when it was seen; it outlives the dead letters.
CREATE TABLE holdfast.group_lives (
    id text COLLATE "C" PRIMARY KEY,
    first_at_us bigint NOT NULL,
    last_at_us bigint NOT NULL,
    total bigint NOT NULL,
    life bytea NOT NULL
);

-- Deaths of these groups that are not added to the row above yet: one row for each commit, so that
-- no two wait for each other.
CREATE TABLE holdfast.group_deaths (
    id text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    last_at_us bigint NOT NULL
);
