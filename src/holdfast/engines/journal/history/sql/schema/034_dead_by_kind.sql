CREATE INDEX dead_by_kind ON dead (kind, created_at_us, tenant, id, shape, state, scope)
