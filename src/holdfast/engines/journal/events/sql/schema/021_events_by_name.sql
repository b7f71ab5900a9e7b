CREATE UNIQUE INDEX events_by_name ON events (id, tenant)
