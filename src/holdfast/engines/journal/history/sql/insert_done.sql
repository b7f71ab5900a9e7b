INSERT INTO done (
  seq, tenant, id, scope, queue, task, created_at_us, finished_at_us, attempt, state, crc, body
)
VALUES
  (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
