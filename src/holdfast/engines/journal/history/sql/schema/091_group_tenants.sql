-- Who is hit by a group, how often; those with 0 any more stay until their group goes.
CREATE TABLE group_tenants (
  kind INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (kind, shape, tenant)
) WITHOUT ROWID
