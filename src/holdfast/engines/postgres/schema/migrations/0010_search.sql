-- Dead letters in the order in which they died, page by page.
-- readable_from: 1

DROP INDEX holdfast.dead_finished;
CREATE INDEX dead_finished ON holdfast.dead (finished_at_us, tenant, id);
