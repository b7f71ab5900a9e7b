-- What time it is, unless somebody knows better.
SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())
