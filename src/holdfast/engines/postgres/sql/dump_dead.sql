-- Every dead letter, and those laid aside.
SELECT
    -- include dead_columns d
FROM holdfast.dead AS d
ORDER BY d.seq, d.tenant, d.id
