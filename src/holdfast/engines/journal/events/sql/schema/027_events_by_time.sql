CREATE INDEX events_by_time ON events (occurred_at_us)
