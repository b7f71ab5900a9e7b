-- The conditions of a filter on the failure.
-- include cause_filter t
AND (%(text)s::text IS NULL OR strpos(lower(t.message), lower(%(text)s::text COLLATE "C")) > 0)
