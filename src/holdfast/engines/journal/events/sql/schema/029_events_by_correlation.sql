CREATE INDEX events_by_correlation ON events (correlation_id) WHERE correlation_id <> ''
