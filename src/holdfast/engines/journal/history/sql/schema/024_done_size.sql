-- How many bytes the jobs of done have; its only row changes with them.
CREATE TABLE done_size (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  bytes INTEGER NOT NULL
)
