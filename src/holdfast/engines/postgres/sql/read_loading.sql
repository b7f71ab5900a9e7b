-- How far a load has come, if one is under way or was interrupted.
SELECT l.records, l.digest FROM holdfast.loading AS l
