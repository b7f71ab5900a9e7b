CREATE TABLE group_scopes (
  kind INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  hour_us INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  scope TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (kind, shape, hour_us, tenant, scope)
) WITHOUT ROWID
