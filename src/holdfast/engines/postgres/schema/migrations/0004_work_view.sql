-- The view of work tells why a job failed last also while it runs again, and who replayed it. What it
-- needs is packed in rows that any version has written, so older code goes on.
-- readable_from: 1

-- A whole number of this many bytes, the highest first.
CREATE FUNCTION holdfast.unpacked_number(packed bytea, at int, size int) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
DECLARE
    number numeric := 0;
BEGIN
    FOR i IN 0..size - 1 LOOP
        number := number * 256 + get_byte(packed, at + i);
    END LOOP;
    RETURN number;
END $$;

-- The MessagePack value at this place, and where the next one begins. Floats and bytes are null: no
-- column is made of one. NUL, which no text can have here, becomes the replacement character.
CREATE FUNCTION holdfast.unpacked_at(packed bytea, at int, OUT value jsonb, OUT following int)
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
DECLARE
    tag int := get_byte(packed, at);
    size int;
    text_bytes bytea;
    item record;
BEGIN
    value := 'null';
    IF tag < 128 THEN
        value := to_jsonb(tag);
        following := at + 1;
    ELSIF tag BETWEEN 144 AND 159 OR tag IN (220, 221) THEN
        size := CASE tag WHEN 220 THEN 2 WHEN 221 THEN 4 ELSE 0 END;
        following := at + 1 + size;
        size := CASE WHEN size = 0 THEN tag - 144 ELSE holdfast.unpacked_number(packed, at + 1, size) END;
        value := '[]';
        FOR i IN 1..size LOOP
            SELECT u.value, u.following INTO item FROM holdfast.unpacked_at(packed, following) AS u;
            value := value || jsonb_build_array(item.value);
            following := item.following;
        END LOOP;
    ELSIF tag BETWEEN 160 AND 191 OR tag IN (217, 218, 219) THEN
        size := CASE tag WHEN 217 THEN 1 WHEN 218 THEN 2 WHEN 219 THEN 4 ELSE 0 END;
        following := at + 1 + size;
        size := CASE WHEN size = 0 THEN tag - 160 ELSE holdfast.unpacked_number(packed, at + 1, size) END;
        text_bytes := substring(packed FROM following + 1 FOR size);
        WHILE position('\x00'::bytea IN text_bytes) > 0 LOOP
            text_bytes := overlay(
                text_bytes PLACING '\xefbfbd'::bytea FROM position('\x00'::bytea IN text_bytes) FOR 1
            );
        END LOOP;
        value := to_jsonb(convert_from(text_bytes, 'UTF8'));
        following := following + size;
    ELSIF tag IN (192, 194, 195) THEN
        value := CASE tag WHEN 192 THEN 'null' WHEN 194 THEN 'false' ELSE 'true' END::jsonb;
        following := at + 1;
    ELSIF tag IN (196, 197, 198) THEN
        size := CASE tag WHEN 196 THEN 1 WHEN 197 THEN 2 ELSE 4 END;
        following := at + 1 + size + holdfast.unpacked_number(packed, at + 1, size);
    ELSIF tag IN (202, 203) THEN
        following := at + 1 + CASE tag WHEN 202 THEN 4 ELSE 8 END;
    ELSIF tag BETWEEN 204 AND 207 THEN
        size := 1 << (tag - 204);
        value := to_jsonb(holdfast.unpacked_number(packed, at + 1, size));
        following := at + 1 + size;
    ELSE
        RAISE EXCEPTION 'no value begins with the byte %', tag;
    END IF;
END $$;

-- What is packed in a column; NULL if this version cannot read it.
CREATE FUNCTION holdfast.unpacked(packed bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    RETURN (SELECT u.value FROM holdfast.unpacked_at(packed, 0) AS u);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- New columns come last, so that rights on the view stay.
CREATE OR REPLACE VIEW holdfast.work AS
SELECT
    w.tenant, w.id, w.scope, w.queue, w.task, w.status, w.attempts, w.max_attempts, w.priority,
    to_timestamp(w.created_at_us / 1e6) AS created_at,
    to_timestamp(w.run_at_us / 1e6) AS next_retry_at,
    nullif(w.worker, '') AS owner,
    CASE WHEN w.lease_until_us > 0 THEN to_timestamp(w.lease_until_us / 1e6) END AS lease_until,
    CASE WHEN w.finished_at_us > 0 THEN to_timestamp(w.finished_at_us / 1e6) END AS finished_at,
    w.error_reason, w.last_error, w.key, w.replay_run,
    CASE WHEN w.started_at_us > 0 THEN to_timestamp(w.started_at_us / 1e6) END
        AS processing_started_at,
    CASE WHEN w.finished_at_us > 0 THEN to_timestamp(w.finished_at_us / 1e6) END AS processed_at,
    coalesce((w.replays ->> 0)::bigint, 0) AS replay_count,
    to_timestamp((w.replays ->> 1)::numeric / 1e6) AS last_replayed_at,
    w.replays ->> 2 AS last_replayed_by,
    w.replays ->> 3 AS last_replayed_reason
FROM (
    SELECT
        j.tenant, j.id, j.scope, j.queue, j.task,
        CASE j.state WHEN 0 THEN 'blocked' WHEN 1 THEN 'pending' ELSE 'processing' END AS status,
        j.attempt AS attempts, j.max_attempts, j.priority, j.created_at_us, j.run_at_us, j.worker,
        j.lease_until_us, 0 AS finished_at_us,
        holdfast.unpacked(j.failure) ->> 0 AS error_reason,
        holdfast.unpacked(j.failure) ->> 2 AS last_error,
        j.key, j.replay_run,
        CASE j.state WHEN 2 THEN j.claimed_at_us ELSE 0 END AS started_at_us,
        holdfast.unpacked(j.more) -> 5 AS replays
    FROM holdfast.jobs AS j
    UNION ALL
    SELECT
        d.tenant, d.id, d.scope, d.queue, d.task,
        CASE d.state WHEN 5 THEN 'failed' ELSE 'archived' END, d.attempt, d.max_attempts,
        d.priority, d.created_at_us, d.run_at_us, d.worker, 0, d.finished_at_us, d.error_reason,
        d.message, d.key, d.replay_run, d.claimed_at_us, holdfast.unpacked(d.more) -> 5
    FROM holdfast.dead AS d
    UNION ALL
    SELECT
        h.tenant, h.id, h.scope, h.queue, h.task,
        CASE h.state WHEN 3 THEN 'done' ELSE 'cancelled' END, h.attempt, h.max_attempts,
        h.priority, h.created_at_us, h.run_at_us, h.worker, 0, h.finished_at_us,
        holdfast.unpacked(h.failure) ->> 0, holdfast.unpacked(h.failure) ->> 2,
        h.key, h.replay_run, h.claimed_at_us, holdfast.unpacked(h.more) -> 5
    FROM holdfast.history AS h
) AS w;
