-- The server's time, unless the caller gives one.
SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())
