CREATE INDEX notes_by_job ON notes (id, tenant, created_at_us)
