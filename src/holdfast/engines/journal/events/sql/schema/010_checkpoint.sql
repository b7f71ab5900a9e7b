-- Up to which effect of the log all events are in here; its only row is written with every feed.
CREATE TABLE checkpoint (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  seq INTEGER NOT NULL,
  crc INTEGER NOT NULL
)
