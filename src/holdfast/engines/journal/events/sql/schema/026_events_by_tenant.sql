CREATE INDEX events_by_tenant ON events (tenant)
