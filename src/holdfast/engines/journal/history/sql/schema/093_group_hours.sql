-- When the jobs of a group died, by hour.
CREATE TABLE group_hours (
  kind INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  hour_us INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (kind, shape, hour_us)
) WITHOUT ROWID
