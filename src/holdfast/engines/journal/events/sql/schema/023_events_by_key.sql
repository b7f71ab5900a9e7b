CREATE INDEX events_by_key ON events (key)
