-- Delete the jobs in these blocks of each partition that finished before this; return how many.
WITH gone AS (
    DELETE FROM holdfast.history AS h
    WHERE h.finished_at_us < %(before_us)s::bigint
        AND h.ctid >= format('(%%s,0)', %(block)s::bigint)::tid
        AND h.ctid < format('(%%s,0)', %(next_block)s::bigint)::tid
    RETURNING 1
)
SELECT count(*) FROM gone
