-- The registry of the processes that run jobs, the commands to them, and what of the audit is logged.
-- Older code goes on, but is not listed and takes no commands.
-- readable_from: 1

-- None of it is work: after a crash of the server each process enters itself again.
CREATE UNLOGGED TABLE holdfast.workers (
    id text COLLATE "C" PRIMARY KEY,
    names text[] COLLATE "C" NOT NULL,
    seen_at_us bigint NOT NULL,
    live_until_us bigint NOT NULL,
    process bytea NOT NULL
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE holdfast.worker_commands (
    id text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    waits_until_us bigint NOT NULL,
    command bytea NOT NULL,
    answer bytea,
    PRIMARY KEY (id, worker)
);

CREATE INDEX worker_commands_open ON holdfast.worker_commands (worker) WHERE answer IS NULL;

-- The last entry of the audit that some process has logged. What is there already is not.
CREATE TABLE holdfast.audit_logged (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL
);
INSERT INTO holdfast.audit_logged (number)
SELECT coalesce(max(a.number), 0) FROM holdfast.audit AS a;
