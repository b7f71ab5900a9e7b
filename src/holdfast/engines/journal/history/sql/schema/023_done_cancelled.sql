-- Of the done only these can have failed: to look for failures is not to look at every job.
CREATE INDEX done_cancelled ON done (created_at_us, tenant, id) WHERE state = 'cancelled'
