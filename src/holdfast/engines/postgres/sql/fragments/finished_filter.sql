-- The conditions of a filter on the time of the end.
AND (%(finished_from_us)s::bigint IS NULL OR t.finished_at_us >= %(finished_from_us)s::bigint)
AND (%(finished_to_us)s::bigint IS NULL OR t.finished_at_us < %(finished_to_us)s::bigint)
