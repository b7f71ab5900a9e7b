-- When the first and the last of a group died, after others have left it.
CREATE INDEX dead_by_group ON dead (kind, shape, finished_at_us) WHERE state = 'dead'
