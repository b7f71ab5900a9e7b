-- An id comes back once its job is forgotten: until that one is swept both are in here.
CREATE UNIQUE INDEX done_by_name ON done (id, tenant, created_at_us)
