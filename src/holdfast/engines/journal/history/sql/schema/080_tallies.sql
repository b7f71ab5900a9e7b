-- How many jobs of done and dead there are.
CREATE TABLE tallies (
  tenant TEXT NOT NULL,
  queue TEXT NOT NULL,
  state TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, queue, state)
) WITHOUT ROWID
