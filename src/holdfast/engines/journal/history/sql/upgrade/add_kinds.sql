INSERT INTO kinds (queue, task, error_reason, failure_class, status, count)
SELECT
  old_kinds.queue, found.task, old_kinds.error_reason, old_kinds.failure_class, 0, found.count
FROM old_kinds
JOIN (SELECT kind, task, count(*) AS count FROM dead GROUP BY kind, task) AS found
  ON found.kind = old_kinds.kind
JOIN kinds AS kept ON kept.kind = old_kinds.kind AND kept.task <> found.task
