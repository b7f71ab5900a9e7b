-- The body, JSON, is authoritative; the columns are for searching. Rows are only ever added.
CREATE TABLE events (
  position INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  scope TEXT NOT NULL,
  event_type TEXT NOT NULL,
  key TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  actor_type TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  request_id TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  occurred_at_us INTEGER NOT NULL,
  fanout_version INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  body TEXT NOT NULL
)
