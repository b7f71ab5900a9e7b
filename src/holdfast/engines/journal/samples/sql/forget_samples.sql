-- Drop the samples of a tier that are too old.
DELETE FROM samples WHERE tier = ? AND at_us < ?
