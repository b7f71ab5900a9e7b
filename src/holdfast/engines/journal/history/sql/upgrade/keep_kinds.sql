-- Each kind keeps its number for one of its tasks: most have but one, and then no row changes.
INSERT INTO kinds (kind, queue, task, error_reason, failure_class, status, count)
SELECT
  old_kinds.kind, old_kinds.queue, min(found.task), old_kinds.error_reason,
  old_kinds.failure_class, 0, found.count
FROM old_kinds
JOIN (SELECT kind, task, count(*) AS count FROM dead GROUP BY kind, task) AS found
  ON found.kind = old_kinds.kind
GROUP BY old_kinds.kind
