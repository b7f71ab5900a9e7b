-- Delete old commands to processes.
DELETE FROM holdfast.worker_commands AS c
WHERE c.waits_until_us < coalesce(%(now_us)s::bigint, holdfast.now_us()) - %(after_us)s::bigint
