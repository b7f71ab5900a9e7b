CREATE INDEX done_by_place ON done (created_at_us, tenant, id, queue, state)
