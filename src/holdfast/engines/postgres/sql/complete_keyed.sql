-- Complete the jobs with a key that are held under these tokens and on which no other job depends.
-- Keys of which one of these jobs cannot end so, or not in this order, are left as they are: of a
-- chain a job can end only after the earlier ones. Make the next job of each key claimable. Return
-- the tokens, and the queues of these next jobs. The keys and the jobs are locked.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
needed AS MATERIALIZED (
    SELECT w.tenant, n.id
    FROM holdfast.jobs AS w
    CROSS JOIN unnest(w.waiting_for) AS n (id)
    WHERE w.waiting_for IS NOT NULL AND w.waiting_for && %(ids)s::text[]
        AND w.state = 0 AND w.line = 0  -- true of all that wait: the index excludes the others
),
given AS MATERIALIZED (
    SELECT j.spot, j.tenant, j.queue, j.key, j.key_seq, j.nonce, o.result, o.number, j.simple
    FROM unnest(
        %(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[], %(results)s::bytea[]
    ) WITH ORDINALITY AS o (tenant, id, token, result, number)
    -- OFFSET 0: one look by the primary key for each, whatever the planner knows of the table.
    CROSS JOIN LATERAL (
        SELECT
            j.ctid AS spot, j.tenant, j.queue, j.key, j.key_seq, j.nonce,
            j.replay_run IS NULL
            AND coalesce(p.ordered AND NOT p.limited, true)
            AND NOT EXISTS (
                SELECT FROM needed AS w WHERE w.tenant = j.tenant AND w.id = j.id
            ) AS simple
        FROM holdfast.jobs AS j
        LEFT JOIN holdfast.policies AS p ON p.queue = j.queue
        WHERE j.tenant = o.tenant AND j.id = o.id AND j.token = o.token
            AND j.state + 0 = 2  -- + 0: use the primary key, not the index of jobs in flight
            -- include reach j
        OFFSET 0
    ) AS j
    WHERE j.key IS NOT NULL  -- not inside: the index of keys would be scanned for it
),
keys AS MATERIALIZED (
    SELECT DISTINCT g.tenant, g.queue, g.key FROM given AS g
),
flight AS MATERIALIZED (
    SELECT
        f.*,
        f.number > 0 AND bool_and(
            f.number = 0
            OR f.simple AND (
                f.nonce >= 0 OR f.before IS NULL OR (f.before > 0 AND f.before < f.number)
            )
        ) OVER (PARTITION BY f.tenant, f.queue, f.key) AS ends
    FROM (
        SELECT
            m.*,
            lag(m.number) OVER (
                PARTITION BY m.tenant, m.queue, m.key ORDER BY m.key_seq
            ) AS before
        FROM (
            -- Grouped rather than joined: a join without an index compares each with each.
            SELECT
                u.spot, u.tenant, u.queue, u.key, u.key_seq, u.nonce, max(u.number) AS number,
                bool_or(u.simple) AS simple,
                (array_agg(u.result ORDER BY u.number DESC))[1] AS result
            FROM (
                SELECT j.*, NULL::bytea AS result, 0 AS number, false AS simple
                FROM keys AS k
                CROSS JOIN LATERAL (
                    SELECT j.ctid AS spot, j.tenant, j.queue, j.key, j.key_seq, j.nonce
                    FROM holdfast.jobs AS j
                    WHERE j.tenant = k.tenant AND j.queue = k.queue AND j.key = k.key
                        -- The index of busy keys, not that of all jobs in flight.
                        AND (j.line <> 0 OR j.state = 2) AND j.state + 0 = 2
                    OFFSET 0
                ) AS j
                UNION ALL
                SELECT g.* FROM given AS g
            ) AS u
            GROUP BY u.spot, u.tenant, u.queue, u.key, u.key_seq, u.nonce
        ) AS m
    ) AS f
),
gone AS (
    DELETE FROM holdfast.jobs AS j
    USING flight AS f
    WHERE j.ctid = f.spot AND f.ends
    RETURNING j.*, f.result
),
done AS (
    INSERT INTO holdfast.history (
        created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, finished_at_us,
        attempt, max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task,
        worker, result, expires_at_us, unique_key, estimated_seconds, max_processing_seconds, key,
        key_seq, replay_run, more, payload
    )
    SELECT
        g.created_at_us, g.run_at_us, g.seq, g.token, g.claimed_at_us, g.lease_until_us,
        greatest(clock.now_us, g.claimed_at_us), g.attempt, g.max_attempts, g.priority, 3,
        g.stop_requested, g.tenant, g.id, g.scope, g.queue, g.task, g.worker, g.result,
        g.expires_at_us, g.unique_key, g.estimated_seconds, g.max_processing_seconds, g.key,
        g.key_seq, g.replay_run, g.more,
        -- include kept_payload g
    FROM gone AS g
    CROSS JOIN clock
    RETURNING token
),
next AS MATERIALIZED (
    SELECT k.tenant, n.id
    FROM (
        SELECT f.tenant, f.queue, f.key
        FROM flight AS f
        GROUP BY f.tenant, f.queue, f.key
        HAVING bool_and(f.ends)
    ) AS k
    CROSS JOIN LATERAL (
        SELECT n.id, n.state, n.key_seq
        FROM holdfast.jobs AS n
        WHERE n.tenant = k.tenant AND n.queue = k.queue AND n.key = k.key AND n.state <> 2
        ORDER BY n.key_seq
        LIMIT 1
    ) AS n
    WHERE n.state = 1
        AND NOT coalesce((
            SELECT d.key_seq
            FROM holdfast.dead AS d
            WHERE d.tenant = k.tenant AND d.queue = k.queue AND d.key = k.key AND d.state = 5
            ORDER BY d.key_seq
            LIMIT 1
        ) < n.key_seq, false)
),
promoted AS (
    UPDATE holdfast.jobs AS j
    SET line = 1
    FROM next AS n
    -- By its name, not by its place: it is not locked, and may be moved by one who marks it as tied.
    WHERE j.tenant = n.tenant AND j.id = n.id AND j.line = 0
    RETURNING j.queue
)
SELECT d.token, NULL::text AS queue FROM done AS d
UNION ALL
SELECT NULL, p.queue FROM (SELECT DISTINCT promoted.queue FROM promoted) AS p
