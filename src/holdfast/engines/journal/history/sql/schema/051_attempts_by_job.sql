CREATE INDEX attempts_by_job ON attempts (id, tenant, created_at_us)
