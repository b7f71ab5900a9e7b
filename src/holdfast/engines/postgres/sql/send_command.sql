-- Send a command to these processes.
INSERT INTO holdfast.worker_commands (id, worker, waits_until_us, command)
SELECT
    %(id)s::text, w.id, coalesce(%(now_us)s::bigint, holdfast.now_us()) + %(ttl_us)s::bigint,
    %(command)s::bytea
FROM unnest(%(workers)s::text[]) AS w (id)
