CREATE UNIQUE INDEX dead_by_name ON dead (id, tenant)
