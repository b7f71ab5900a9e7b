-- Events, the subscriptions that turn them into jobs, and the keys of jobs that came in a transaction
-- of the caller's. Older code goes on, but does not hand out the jobs of such keys: upgrade the
-- workers before those who append.
-- readable_from: 1

-- A time in microseconds as a timestamp, and back, without a loss.
CREATE FUNCTION holdfast.time_of(us bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT timestamptz '1970-01-01 00:00:00+00' + make_interval(hours => (us / 3600000000)::int)
        + (us % 3600000000) * interval '1 microsecond'
$$;

CREATE FUNCTION holdfast.us_of(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM moment) * 1000000)::bigint $$;

-- The source of truth: nothing in it is changed. JSON is kept as it came, byte for byte; cast it to
-- jsonb to search in it. A UUIDv7 sorts by its time, so there is a partition for each month; other
-- ids are anywhere, most of them in the rest.
CREATE TABLE holdfast.chronicle_events (
    event_id uuid NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    payload json NOT NULL,
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    entity_type text COLLATE "C" NOT NULL,
    entity_id text COLLATE "C" NOT NULL,
    actor_type text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    actor_user_id text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN actor_type = 'user' THEN actor_id END
    ) STORED,
    actor_name text,
    before json,
    after json,
    diff json,
    occurred_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    position bigint NOT NULL,
    fanout_version bigint NOT NULL,
    request_id text COLLATE "C",
    device text,
    client text,
    ip text,
    reason text,
    correlation_id text COLLATE "C",
    causation_id text COLLATE "C",
    trace_id text COLLATE "C",
    supersedes uuid,
    imported_by text,
    PRIMARY KEY (event_id, tenant)
) PARTITION BY RANGE (event_id);

CREATE TABLE holdfast.chronicle_events_rest PARTITION OF holdfast.chronicle_events DEFAULT;
CREATE INDEX chronicle_events_position ON holdfast.chronicle_events (position);
CREATE INDEX chronicle_events_key ON holdfast.chronicle_events (key, tenant, position);
CREATE INDEX chronicle_events_entity
    ON holdfast.chronicle_events (entity_id, entity_type, tenant, position);
CREATE INDEX chronicle_events_type ON holdfast.chronicle_events (event_type, position);
CREATE INDEX chronicle_events_actor ON holdfast.chronicle_events (actor_id, actor_type, position);
CREATE INDEX chronicle_events_occurred ON holdfast.chronicle_events (occurred_at);

-- The lowest UUIDv7 of a time in UTC.
CREATE FUNCTION holdfast.first_uuid(start timestamp) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM start) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- Make the partition of the month so many months after this time; return whether it is new. A month
-- of which there is something in the rest stays there. NULL: somebody is in the way.
CREATE FUNCTION holdfast.make_month(at_us bigint, months int) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '200ms'
AS $$
DECLARE
    start timestamp := date_trunc('month', holdfast.time_of(at_us) AT TIME ZONE 'UTC')
        + make_interval(months => months);
    name text := 'chronicle_events_' || to_char(start, 'YYYYMM');
    from_id uuid := holdfast.first_uuid(start);
    to_id uuid := holdfast.first_uuid(start + interval '1 month');
BEGIN
    IF EXISTS (
        SELECT FROM pg_inherits AS i
        JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'holdfast.chronicle_events'::regclass AND c.relname = name
    ) OR EXISTS (
        SELECT FROM holdfast.chronicle_events_rest AS r
        WHERE r.event_id >= from_id AND r.event_id < to_id
    ) THEN
        RETURN false;
    END IF;
    -- To attach it locks the rest alone; to make it as a partition would lock all events.
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.chronicle_events INCLUDING ALL)', name);
    EXECUTE format(
        'ALTER TABLE holdfast.chronicle_events ATTACH PARTITION holdfast.%I'
        ' FOR VALUES FROM (%L) TO (%L)',
        name, from_id, to_id
    );
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR check_violation THEN
    RETURN NULL;
END $$;

SELECT holdfast.make_month(holdfast.now_us(), m.number) FROM generate_series(0, 3) AS m (number);

-- Which events become jobs, and of what kind; no types: all of them.
CREATE TABLE holdfast.subscriptions (
    name text COLLATE "C" PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    event_types text[] COLLATE "C" NOT NULL,
    max_attempts integer NOT NULL,
    since_version bigint NOT NULL
);

-- The version of the subscriptions. Every event stores the one that it was given to.
CREATE TABLE holdfast.fanout (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL
);
INSERT INTO holdfast.fanout (version) VALUES (0);

-- Versions before which a transaction may still be open that uses an earlier one: the transaction that
-- made the version; and, once nobody has a snapshot from before it, a transaction of that time.
CREATE TABLE holdfast.fanout_marks (
    version bigint PRIMARY KEY,
    made_by xid8 NOT NULL,
    ends_at xid8
);

-- Keys with new jobs that are in no line yet: a transaction of the caller's holds no lock that a claim
-- or a settle needs, so they are lined up after its commit. A mark with a lower place may be committed
-- later.
CREATE TABLE holdfast.fresh_keys (
    place bigint NOT NULL DEFAULT holdfast.next_places(),
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX fresh_keys_place ON holdfast.fresh_keys (queue, place);

-- The full number of a transaction of which a row has the lower half.
CREATE FUNCTION holdfast.full_xid(short xid) RETURNS xid8
LANGUAGE sql STABLE STRICT
AS $$
    SELECT (
        n.following + 2147483648
        - ((n.following - short::text::bigint + 2147483648) % 4294967296 + 4294967296) % 4294967296
    )::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS following) AS n
$$;
