-- Drop the samples of a tier that are too old.
DELETE FROM holdfast.samples AS s
WHERE s.tier = %(tier)s::smallint AND s.at_us < %(before_us)s::bigint
