UPDATE dead SET kind = new.kind
FROM old_kinds
JOIN kinds AS new
  ON new.queue = old_kinds.queue
  AND new.error_reason = old_kinds.error_reason
  AND new.failure_class = old_kinds.failure_class
WHERE old_kinds.kind = dead.kind AND new.task = dead.task AND new.kind <> dead.kind
