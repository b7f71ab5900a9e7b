CREATE INDEX dead_by_tenant ON dead (tenant, created_at_us, id, kind, shape, state, scope)
