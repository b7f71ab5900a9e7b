SELECT dead.seq, json_array(
  dead.seq, tenant, id, scope, queue, kinds.task, error_reason, failure_class, status, fingerprint,
  dead.task, key, replay_run, state, attempt, created_at_us, finished_at_us, message
), crc, body
FROM dead
JOIN dead_bodies ON dead_bodies.seq = dead.seq
JOIN kinds ON kinds.kind = dead.kind
JOIN shapes ON shapes.shape = dead.shape
WHERE dead.seq > :after
ORDER BY dead.seq
LIMIT :limit
