-- Dead jobs that are alike; tenants and scopes are how many different ones there are.
CREATE TABLE groups (
  kind INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  count INTEGER NOT NULL,
  first_at_us INTEGER NOT NULL,
  last_at_us INTEGER NOT NULL,
  tenants INTEGER NOT NULL,
  scopes INTEGER NOT NULL,
  PRIMARY KEY (kind, shape)
) WITHOUT ROWID
