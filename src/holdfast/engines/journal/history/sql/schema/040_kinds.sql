-- What failures of one queue and task have in common, and how many rows of dead are of this kind.
-- status: the HTTP status, 0 without one.
CREATE TABLE kinds (
  kind INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  task TEXT NOT NULL,
  error_reason TEXT NOT NULL,
  failure_class TEXT NOT NULL,
  status INTEGER NOT NULL,
  count INTEGER NOT NULL,
  UNIQUE (queue, task, error_reason, failure_class, status)
)
