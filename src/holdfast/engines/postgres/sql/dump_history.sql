-- Completed and cancelled jobs that finished since this time.
SELECT
    -- include history_columns h
FROM holdfast.history AS h
WHERE h.finished_at_us >= %(since_us)s::bigint
ORDER BY h.seq, h.tenant, h.id
