-- Delete some old finished jobs that are in no partition of a day; return how many.
WITH gone AS (
    DELETE FROM holdfast.history_rest AS h
    WHERE h.ctid = ANY (ARRAY(
        SELECT r.ctid
        FROM holdfast.history_rest AS r
        WHERE r.finished_at_us
            < (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
        ORDER BY r.finished_at_us
        LIMIT %(limit)s::int
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
