-- All dead and archived jobs.
SELECT
    -- include dead_columns d
FROM holdfast.dead AS d
ORDER BY d.seq, d.tenant, d.id
