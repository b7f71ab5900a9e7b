CREATE INDEX events_by_type ON events (event_type)
