-- Work, as DESIGN says: a narrow hot table, dead letters apart, finished work in partitions.
-- Texts compare by their bytes, as they do in the program.

CREATE SEQUENCE holdfast.places;
CREATE SEQUENCE holdfast.tokens;

-- The time, for everybody. Replace it to have another one.
CREATE FUNCTION holdfast.now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- A number for an advisory lock: of a key, a queue, the audit, …
CREATE FUNCTION holdfast.lock_number(what text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended('holdfast.' || what, 0) $$;

-- Give up, because somebody else has what this transaction wants.
CREATE FUNCTION holdfast.refuse(what text) RETURNS text
LANGUAGE plpgsql
AS $$ BEGIN
    RAISE EXCEPTION '% is taken', what USING ERRCODE = 'unique_violation';
END $$;

-- Unfinished work. state: 0 blocked, 1 pending, 2 in flight.
-- line: 0 nobody may claim it, 1 the common line of its queue, 2 the line of its tenant.
-- tied: its end means something to others, so it is settled with care.
CREATE TABLE holdfast.jobs (
    created_at_us bigint NOT NULL,
    run_at_us bigint NOT NULL,
    seq bigint NOT NULL DEFAULT nextval('holdfast.places'),
    token bigint NOT NULL DEFAULT 0,
    claimed_at_us bigint NOT NULL DEFAULT 0,
    lease_until_us bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    line smallint NOT NULL,
    tied boolean NOT NULL DEFAULT false,
    stop_requested boolean NOT NULL DEFAULT false,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL DEFAULT '',
    payload bytea NOT NULL,
    nonce bigint,
    expires_at_us bigint,
    unique_key text COLLATE "C",
    estimated_seconds double precision,
    max_processing_seconds double precision,
    key text COLLATE "C",
    key_seq bigint,
    waiting_for text[] COLLATE "C",
    failure bytea,
    replay_run text COLLATE "C",
    more bytea,
    PRIMARY KEY (tenant, id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX jobs_line ON holdfast.jobs (queue, priority DESC, run_at_us, seq) WHERE line = 1;
CREATE INDEX jobs_by_tenant ON holdfast.jobs (queue, tenant, priority DESC, run_at_us, seq)
    WHERE line = 2;
CREATE INDEX jobs_leases ON holdfast.jobs (lease_until_us) WHERE state = 2;
CREATE UNIQUE INDEX jobs_unique ON holdfast.jobs (tenant, queue, unique_key)
    WHERE unique_key IS NOT NULL;
CREATE INDEX jobs_key ON holdfast.jobs (tenant, queue, key, key_seq) WHERE key IS NOT NULL;
CREATE INDEX jobs_key_busy ON holdfast.jobs (tenant, queue, key)
    WHERE key IS NOT NULL AND (line <> 0 OR state = 2);
CREATE INDEX jobs_expiry ON holdfast.jobs (expires_at_us)
    WHERE expires_at_us IS NOT NULL AND state < 2;
CREATE INDEX jobs_waiting ON holdfast.jobs USING gin (waiting_for) WHERE waiting_for IS NOT NULL;

-- Dead letters, and those laid aside. state: 5 dead, 6 archived.
CREATE TABLE holdfast.dead (
    created_at_us bigint NOT NULL,
    run_at_us bigint NOT NULL,
    seq bigint NOT NULL,
    token bigint NOT NULL,
    claimed_at_us bigint NOT NULL,
    lease_until_us bigint NOT NULL,
    finished_at_us bigint NOT NULL,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    stop_requested boolean NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    error_reason text COLLATE "C" NOT NULL,
    failure_class text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    expires_at_us bigint,
    unique_key text COLLATE "C",
    estimated_seconds double precision,
    max_processing_seconds double precision,
    key text COLLATE "C",
    key_seq bigint,
    waiting_for text[] COLLATE "C",
    failure bytea,
    replay_run text COLLATE "C",
    more bytea,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX dead_made ON holdfast.dead (created_at_us, tenant, id);
CREATE INDEX dead_finished ON holdfast.dead (finished_at_us);
CREATE INDEX dead_reason ON holdfast.dead (error_reason, created_at_us, tenant, id);
CREATE INDEX dead_queue ON holdfast.dead (queue, created_at_us, tenant, id);
CREATE INDEX dead_key ON holdfast.dead (tenant, queue, key, key_seq)
    WHERE key IS NOT NULL AND state = 5;

-- Completed and cancelled work, a partition a day, dropped whole. state: 3 completed, 4 cancelled.
CREATE TABLE holdfast.history (
    created_at_us bigint NOT NULL,
    run_at_us bigint NOT NULL,
    seq bigint NOT NULL,
    token bigint NOT NULL,
    claimed_at_us bigint NOT NULL,
    lease_until_us bigint NOT NULL,
    finished_at_us bigint NOT NULL,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    stop_requested boolean NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    result bytea,
    expires_at_us bigint,
    unique_key text COLLATE "C",
    estimated_seconds double precision,
    max_processing_seconds double precision,
    key text COLLATE "C",
    key_seq bigint,
    waiting_for text[] COLLATE "C",
    failure bytea,
    replay_run text COLLATE "C",
    more bytea
) PARTITION BY RANGE (finished_at_us);

CREATE TABLE holdfast.history_rest PARTITION OF holdfast.history DEFAULT;
CREATE INDEX history_name ON holdfast.history (tenant, id);
CREATE INDEX history_rest_finished ON holdfast.history_rest (finished_at_us);

-- Make the partition of the day that begins then; return whether it is new. A day of which there is
-- something in the rest stays there. NULL: somebody is in the way, and is not kept waiting.
CREATE FUNCTION holdfast.make_day(from_us bigint) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '200ms'
AS $$
DECLARE
    to_us bigint := from_us + 86400000000;
    day text := 'history_' || to_char(to_timestamp(from_us / 1000000) AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
    IF EXISTS (
        SELECT FROM pg_inherits AS i
        JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'holdfast.history'::regclass AND c.relname = day
    ) OR EXISTS (
        SELECT FROM holdfast.history_rest AS r
        WHERE r.finished_at_us >= from_us AND r.finished_at_us < to_us
    ) THEN
        RETURN false;
    END IF;
    -- To attach it locks the rest alone; to make it as a partition would lock all of history.
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.history INCLUDING ALL)', day);
    EXECUTE format(
        'ALTER TABLE holdfast.history ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
        day, from_us, to_us
    );
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR check_violation THEN
    RETURN NULL;
END $$;

-- Drop a partition. NULL: somebody is in the way, and is not kept waiting.
CREATE FUNCTION holdfast.drop_day(day regclass) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '200ms'
AS $$
BEGIN
    EXECUTE format('DROP TABLE %s', day);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL;
END $$;

-- Attempts that ended other than by completing, and what people did, of any job that is kept.
CREATE TABLE holdfast.attempts (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    made_us bigint NOT NULL,
    token bigint NOT NULL,
    attempt bytea NOT NULL,
    PRIMARY KEY (tenant, id, token)
);

CREATE TABLE holdfast.notes (
    number bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    made_us bigint NOT NULL,
    note bytea NOT NULL,
    PRIMARY KEY (tenant, id, number)
);

-- What governs work. line is that of the queue's jobs; limited ones are claimed one by one.
CREATE TABLE holdfast.policies (
    queue text COLLATE "C" PRIMARY KEY,
    line smallint NOT NULL,
    ordered boolean NOT NULL,
    limited boolean NOT NULL,
    spent_until_us bigint NOT NULL DEFAULT 0,
    policy bytea NOT NULL
) WITH (fillfactor = 50);

-- Which tenant of a queue had its turn when: the token of its last claim.
CREATE TABLE holdfast.turns (
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (queue, tenant)
) WITH (fillfactor = 50);

CREATE TABLE holdfast.flags (name text COLLATE "C" PRIMARY KEY, on_ boolean NOT NULL);
CREATE TABLE holdfast.schedules (name text COLLATE "C" PRIMARY KEY, schedule bytea NOT NULL);

CREATE TABLE holdfast.audit (number bigint PRIMARY KEY, hash text NOT NULL, record bytea NOT NULL);

-- Who waits for work, so that nobody is notified in vain.
CREATE UNLOGGED TABLE holdfast.waiting (
    listener text COLLATE "C" PRIMARY KEY,
    until_us bigint NOT NULL,
    queues text[] COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- When each periodic loop ran last, whoever ran it.
CREATE TABLE holdfast.loops (name text COLLATE "C" PRIMARY KEY, ran_at_us bigint NOT NULL)
    WITH (fillfactor = 50);

-- For people and their tools: every job that is kept, in the words that many outboxes use.
CREATE VIEW holdfast.work AS
SELECT
    w.tenant, w.id, w.scope, w.queue, w.task, w.status, w.attempts, w.max_attempts, w.priority,
    to_timestamp(w.created_at_us / 1e6) AS created_at,
    to_timestamp(w.run_at_us / 1e6) AS next_retry_at,
    nullif(w.worker, '') AS owner,
    CASE WHEN w.lease_until_us > 0 THEN to_timestamp(w.lease_until_us / 1e6) END AS lease_until,
    CASE WHEN w.finished_at_us > 0 THEN to_timestamp(w.finished_at_us / 1e6) END AS finished_at,
    w.error_reason, w.last_error, w.key, w.replay_run
FROM (
    SELECT
        j.tenant, j.id, j.scope, j.queue, j.task,
        CASE j.state WHEN 0 THEN 'blocked' WHEN 1 THEN 'pending' ELSE 'processing' END AS status,
        j.attempt AS attempts, j.max_attempts, j.priority, j.created_at_us, j.run_at_us, j.worker,
        j.lease_until_us, 0 AS finished_at_us, NULL AS error_reason, NULL AS last_error, j.key,
        j.replay_run
    FROM holdfast.jobs AS j
    UNION ALL
    SELECT
        d.tenant, d.id, d.scope, d.queue, d.task,
        CASE d.state WHEN 5 THEN 'failed' ELSE 'archived' END, d.attempt, d.max_attempts,
        d.priority, d.created_at_us, d.run_at_us, d.worker, 0, d.finished_at_us, d.error_reason,
        d.message, d.key, d.replay_run
    FROM holdfast.dead AS d
    UNION ALL
    SELECT
        h.tenant, h.id, h.scope, h.queue, h.task,
        CASE h.state WHEN 3 THEN 'done' ELSE 'cancelled' END, h.attempt, h.max_attempts,
        h.priority, h.created_at_us, h.run_at_us, h.worker, 0, h.finished_at_us, NULL, NULL,
        h.key, h.replay_run
    FROM holdfast.history AS h
) AS w;

-- How far a load of a dump has come, while there is one: nobody else uses the tables meanwhile.
CREATE TABLE holdfast.loading (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    records bigint NOT NULL DEFAULT 0,
    digest bytea NOT NULL
);
