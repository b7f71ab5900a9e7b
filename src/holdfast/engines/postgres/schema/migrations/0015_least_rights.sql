-- Roles with few rights can run jobs: partitions are made by functions with the rights of the owner, the
-- search_path of a caller means nothing to any function, and periodic work and the audit are locked by
-- rows, which only roles with rights in this schema can lock. Older code goes on: it locks them by
-- advisory locks still. What both do at once is done twice or tried again, see docs/adr/0046.
-- readable_from: 1

-- Bodies that are parsed here, under the search_path of a migration, and can still be inlined.
CREATE OR REPLACE FUNCTION holdfast.now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

CREATE OR REPLACE FUNCTION holdfast.lock_number(what text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('holdfast.' || what, 0);

CREATE OR REPLACE FUNCTION holdfast.queue_number(queue text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN hashtextextended(queue, 0);

CREATE OR REPLACE FUNCTION holdfast.next_places() RETURNS bigint
LANGUAGE sql VOLATILE
RETURN nextval('holdfast.places');

CREATE OR REPLACE FUNCTION holdfast.time_of(us bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN timestamptz '1970-01-01 00:00:00+00' + make_interval(hours => (us / 3600000000)::int)
    + (us % 3600000000) * interval '1 microsecond';

CREATE OR REPLACE FUNCTION holdfast.us_of(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (extract(epoch FROM moment) * 1000000)::bigint;

CREATE OR REPLACE FUNCTION holdfast.first_uuid(start timestamp) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN rpad(lpad(to_hex((extract(epoch FROM start) * 1000)::bigint), 12, '0'), 32, '0')::uuid;

CREATE OR REPLACE FUNCTION holdfast.full_xid(short xid) RETURNS xid8
LANGUAGE sql STABLE STRICT
BEGIN ATOMIC
    SELECT (
        n.following + 2147483648
        - ((n.following - short::text::bigint + 2147483648) % 4294967296 + 4294967296) % 4294967296
    )::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS following) AS n;
END;

-- The others are parsed when they are called. pg_temp is named, so that it is searched last.
ALTER FUNCTION holdfast.refuse(text) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.unpacked_number(bytea, int, int) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.unpacked_at(bytea, int) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.unpacked(bytea) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.count_dead() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.forget_counts_of_dead() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.recount_dead() SET search_path = pg_catalog, pg_temp;

-- Take every right on a new partition from all but its owner: rights on the whole table are enough, and
-- default privileges would let somebody change events in their partition.
CREATE FUNCTION holdfast.revoke_all(relation regclass) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT DISTINCT
            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who
        FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
        WHERE c.oid = relation AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', relation, granted.who);
    END LOOP;
END $$;

-- Partitions are made and dropped with the rights of the owner, by whoever may call these.
CREATE OR REPLACE FUNCTION holdfast.make_day(from_us bigint) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
    PERFORM holdfast.revoke_all(format('holdfast.%I', day)::regclass);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR check_violation THEN
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION holdfast.make_month(at_us bigint, months int) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
    PERFORM holdfast.revoke_all(format('holdfast.%I', name)::regclass);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR check_violation THEN
    RETURN NULL;
END $$;

-- Drop a partition of history. NULL: somebody is in the way, and is not kept waiting.
CREATE OR REPLACE FUNCTION holdfast.drop_day(day regclass) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_inherits AS i
        WHERE i.inhrelid = day AND i.inhparent = 'holdfast.history'::regclass
    ) OR day = 'holdfast.history_rest'::regclass THEN
        RAISE EXCEPTION '% is not a day of history', day USING ERRCODE = 'wrong_object_type';
    END IF;
    EXECUTE format('DROP TABLE %s', day);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL;
END $$;

-- What acts with the rights of the owner is not for everybody who may use the schema: a trigger function
-- could be put on a table of one's own, and would count or forget dead letters that do not exist.
REVOKE EXECUTE ON FUNCTION holdfast.make_day(bigint), holdfast.make_month(bigint, int),
    holdfast.drop_day(regclass), holdfast.count_dead(), holdfast.forget_counts_of_dead(),
    holdfast.recount_dead(), holdfast.revoke_all(regclass) FROM PUBLIC;

-- Whoever does periodic work, or appends to the audit, has locked its row. 0: never done.
INSERT INTO holdfast.loops (name, ran_at_us)
VALUES ('audit', 0), ('audit_log', 0), ('prune', 0), ('reclaim', 0), ('samples', 0)
ON CONFLICT (name) DO NOTHING;
