UPDATE done_size SET bytes = bytes - (
  SELECT coalesce(sum(length(CAST(body AS BLOB)) + 256), 0)
  FROM done
  WHERE seq > :after AND seq <= :until AND finished_at_us < :before_us
)
