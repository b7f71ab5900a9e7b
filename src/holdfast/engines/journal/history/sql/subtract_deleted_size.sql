UPDATE done_size SET bytes = bytes - (
  SELECT coalesce(sum(length(CAST(body AS BLOB)) + 256), 0)
  FROM done
  WHERE seq IN (SELECT value FROM json_each(:seqs))
)
