-- What failures of one queue have in common, and how many rows of dead are of this kind.
CREATE TABLE kinds (
  kind INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  error_reason TEXT NOT NULL,
  failure_class TEXT NOT NULL,
  count INTEGER NOT NULL,
  UNIQUE (queue, error_reason, failure_class)
)
