-- Delete listeners whose registration has ended.
DELETE FROM holdfast.waiting AS w
WHERE w.until_us < coalesce(%(now_us)s::bigint, holdfast.now_us()) - %(after_us)s::bigint
