-- Operations: actions on many jobs that are stored, and how their members ended.
-- Older code goes on: it replays without operations, and does not count outcomes.
-- readable_from: 1

CREATE TABLE holdfast.operations (
    id text COLLATE "C" PRIMARY KEY,
    started_at_us bigint NOT NULL,
    ended_at_us bigint NOT NULL,
    operation bytea NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX operations_started ON holdfast.operations (started_at_us, id);
CREATE INDEX operations_running ON holdfast.operations (started_at_us, id) WHERE ended_at_us = 0;

-- Only inserted into while members end: a counter would be one row that all of them lock.
CREATE TABLE holdfast.operation_outcomes (
    operation text COLLATE "C" NOT NULL,
    state smallint NOT NULL,
    count bigint NOT NULL
);

CREATE INDEX operation_outcomes_of ON holdfast.operation_outcomes (operation);
