-- Complete the jobs held under these tokens on which no other job depends; return their tokens.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
gone AS (
    DELETE FROM holdfast.jobs AS j
    USING unnest(
        %(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[], %(results)s::bytea[]
    ) AS o (tenant, id, token, result)
    WHERE j.tenant = o.tenant
        AND j.id = o.id
        AND j.token = o.token
        AND j.state + 0 = 2  -- + 0: use the primary key, not the index of jobs in flight
        AND NOT j.tied
        -- include reach j
    RETURNING j.*, o.result
)
INSERT INTO holdfast.history (
    created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, finished_at_us, attempt,
    max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task, worker, result,
    expires_at_us, unique_key, estimated_seconds, max_processing_seconds, replay_run, more, payload
)
SELECT
    g.created_at_us, g.run_at_us, g.seq, g.token, g.claimed_at_us, g.lease_until_us,
    greatest(clock.now_us, g.claimed_at_us), g.attempt, g.max_attempts, g.priority, 3,
    g.stop_requested, g.tenant, g.id, g.scope, g.queue, g.task, g.worker, g.result,
    g.expires_at_us, g.unique_key, g.estimated_seconds, g.max_processing_seconds, g.replay_run,
    g.more,
    -- include kept_payload g
FROM gone AS g
CROSS JOIN clock
RETURNING token
