-- Dead letters in more orders, page by page, and those of a rare class.
-- readable_from: 1

DROP INDEX holdfast.dead_finished;
CREATE INDEX dead_finished ON holdfast.dead (finished_at_us, tenant, id);
CREATE INDEX dead_attempts ON holdfast.dead (attempt, tenant, id);
CREATE INDEX dead_class ON holdfast.dead (failure_class, created_at_us, tenant, id);
