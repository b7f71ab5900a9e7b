-- Completed and cancelled jobs, in the order in which they finished: seq is the effect's.
CREATE TABLE done (
  seq INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  scope TEXT NOT NULL,
  queue TEXT NOT NULL,
  task TEXT NOT NULL,
  state TEXT NOT NULL,
  created_at_us INTEGER NOT NULL,
  finished_at_us INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  body TEXT NOT NULL
)
