-- Delete processes that have been silent for long.
DELETE FROM holdfast.workers AS w
WHERE w.live_until_us < coalesce(%(now_us)s::bigint, holdfast.now_us()) - %(after_us)s::bigint
