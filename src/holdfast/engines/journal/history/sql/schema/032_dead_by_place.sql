-- The last four columns are not for the order: with them a page never reads rows in vain.
CREATE INDEX dead_by_place ON dead (created_at_us, tenant, id, kind, shape, state, scope)
