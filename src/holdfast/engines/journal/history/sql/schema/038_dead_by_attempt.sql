CREATE INDEX dead_by_attempt ON dead (attempt, tenant, id, kind, shape, state, scope)
