-- The time, and when this periodic work was last done by any process.
SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()), (
    SELECT l.ran_at_us FROM holdfast.loops AS l WHERE l.name = %(name)s::text
)
