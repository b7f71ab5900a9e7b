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

-- Partitions are made and dropped with the rights of the owner, by whoever may call these.
ALTER FUNCTION holdfast.make_day(bigint) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION holdfast.make_month(bigint, int)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

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
    holdfast.recount_dead() FROM PUBLIC;

-- Whoever does periodic work, or appends to the audit, has locked its row. 0: never done.
INSERT INTO holdfast.loops (name, ran_at_us)
VALUES ('audit', 0), ('audit_log', 0), ('prune', 0), ('reclaim', 0), ('samples', 0)
ON CONFLICT (name) DO NOTHING;
