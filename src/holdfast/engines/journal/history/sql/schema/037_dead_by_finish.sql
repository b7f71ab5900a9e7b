-- The last six columns are not for the order: with them a page never reads rows in vain.
CREATE INDEX dead_by_finish ON dead (
  finished_at_us, tenant, id, kind, shape, state, scope, created_at_us, attempt
)
