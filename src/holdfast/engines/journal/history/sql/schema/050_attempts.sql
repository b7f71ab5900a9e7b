-- Every attempt that ended in another way than by completion; created_at_us tells jobs of one id apart.
CREATE TABLE attempts (
  seq INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at_us INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  body TEXT NOT NULL
)
