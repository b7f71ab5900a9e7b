-- The progress of a load that is under way or was interrupted.
SELECT l.records, l.digest FROM holdfast.loading AS l
