-- When this periodic work was done last, whoever did it; and what time it is.
SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()), (
    SELECT l.ran_at_us FROM holdfast.loops AS l WHERE l.name = %(name)s::text
)
