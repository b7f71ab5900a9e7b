-- Dead and archived jobs without their bodies, so that a scan of the messages stays narrow.
CREATE TABLE dead (
  seq INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  scope TEXT NOT NULL,
  kind INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  task TEXT NOT NULL,
  key TEXT,
  replay_run TEXT NOT NULL,
  state TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  created_at_us INTEGER NOT NULL,
  finished_at_us INTEGER NOT NULL,
  message TEXT NOT NULL
)
