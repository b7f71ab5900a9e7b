-- Groups of dead letters are counted when a dead letter comes or goes, not when they are listed.
-- Triggers count, so what older code does is counted too, and it goes on.
-- readable_from: 1

-- A group of dead letters of one class, as a number.
CREATE FUNCTION holdfast.group_number(
    queue text, task text, error_reason text, status integer, fingerprint text, failure_class text
) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(
    queue || E'\x1f' || task || E'\x1f' || error_reason || E'\x1f' || coalesce(status, 0)::text
    || E'\x1f' || failure_class || E'\x1f' || fingerprint,
    0
);

-- What came and went and is not added to the tables below yet: only inserted into, so that nobody
-- who settles waits for another. Pruning adds it up.
CREATE TABLE holdfast.dead_changes (
    number bigint NOT NULL,
    hour_us bigint NOT NULL,
    count integer NOT NULL,
    status integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    error_reason text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    failure_class text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);

-- How many dead letters a group of one class has, of how many tenants and scopes.
CREATE TABLE holdfast.dead_groups (
    number bigint PRIMARY KEY,
    count bigint NOT NULL,
    tenants bigint NOT NULL,
    scopes bigint NOT NULL,
    status integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    error_reason text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    failure_class text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- How many of them are of a scope (kind 0), of a tenant (1) and of an hour (3): what grouping() gives
-- for tenant and scope. What does not apply is empty.
CREATE TABLE holdfast.dead_tallies (
    number bigint NOT NULL,
    hour_us bigint NOT NULL,
    count bigint NOT NULL,
    kind smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    PRIMARY KEY (number, kind, hour_us, tenant, scope)
);

-- The first and the last death of a group are its first and its last entry.
DROP INDEX holdfast.dead_group;
CREATE INDEX dead_group ON holdfast.dead (
    holdfast.group_number(queue, task, error_reason, status, fingerprint, failure_class),
    finished_at_us
) WHERE state = 5;

-- Counts the rows of a statement, each as often as the argument says. By the rights of the owner:
-- whoever may write dead letters need not know of the counts.
CREATE FUNCTION holdfast.count_dead() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = ''
AS $$
BEGIN
    -- To insert or update counts as both, and mostly nothing is updated.
    IF NOT EXISTS (SELECT FROM changed) THEN
        RETURN NULL;
    END IF;
    INSERT INTO holdfast.dead_changes (
        number, hour_us, count, status, queue, task, error_reason, fingerprint, failure_class,
        tenant, scope
    )
    SELECT
        holdfast.group_number(
            c.queue, c.task, c.error_reason, c.status, c.fingerprint, c.failure_class
        ),
        c.hour_us, c.count * TG_ARGV[0]::int, c.status, c.queue, c.task, c.error_reason,
        c.fingerprint, c.failure_class, c.tenant, c.scope
    FROM (
        SELECT
            d.queue, d.task, d.error_reason, coalesce(d.status, 0) AS status, d.fingerprint,
            d.failure_class, d.tenant, d.scope,
            d.finished_at_us / 3600000000 * 3600000000 AS hour_us, count(*) AS count
        FROM changed AS d
        WHERE d.state = 5
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    ) AS c;
    RETURN NULL;
END $$;

CREATE TRIGGER count_inserted AFTER INSERT ON holdfast.dead
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_dead('1');
CREATE TRIGGER count_deleted AFTER DELETE ON holdfast.dead
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_dead('-1');
CREATE TRIGGER count_updated AFTER UPDATE ON holdfast.dead
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_dead('1');
CREATE TRIGGER discount_updated AFTER UPDATE ON holdfast.dead
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_dead('-1');

CREATE FUNCTION holdfast.forget_counts_of_dead() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = ''
AS $$
BEGIN
    TRUNCATE holdfast.dead_changes, holdfast.dead_groups, holdfast.dead_tallies;
    RETURN NULL;
END $$;

CREATE TRIGGER count_truncated AFTER TRUNCATE ON holdfast.dead
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.forget_counts_of_dead();

-- Count all dead letters anew.
CREATE FUNCTION holdfast.recount_dead() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    LOCK TABLE holdfast.dead IN SHARE ROW EXCLUSIVE MODE;
    TRUNCATE holdfast.dead_changes, holdfast.dead_groups, holdfast.dead_tallies;
    INSERT INTO holdfast.dead_changes (
        number, hour_us, count, status, queue, task, error_reason, fingerprint, failure_class,
        tenant, scope
    )
    SELECT
        holdfast.group_number(
            d.queue, d.task, d.error_reason, d.status, d.fingerprint, d.failure_class
        ),
        d.finished_at_us / 3600000000 * 3600000000, count(*), coalesce(d.status, 0), d.queue,
        d.task, d.error_reason, d.fingerprint, d.failure_class, d.tenant, d.scope
    FROM holdfast.dead AS d
    WHERE d.state = 5
    GROUP BY 1, 2, 4, 5, 6, 7, 8, 9, 10, 11;
END $$;

SELECT holdfast.recount_dead();

-- Finished jobs that failed and are not dead, such as cancelled ones: few of all.
CREATE INDEX history_failed ON holdfast.history (created_at_us, tenant, id)
    WHERE failure IS NOT NULL;
