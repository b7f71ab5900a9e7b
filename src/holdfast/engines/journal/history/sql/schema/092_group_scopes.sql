CREATE TABLE group_scopes (
  kind INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  scope TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (kind, shape, tenant, scope)
) WITHOUT ROWID
