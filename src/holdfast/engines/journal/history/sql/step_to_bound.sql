-- Up to which of the first ones jobs have to go, so that this many bytes are free.
SELECT max(seq)
FROM (
  SELECT seq, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS before_bytes
  FROM (
    SELECT seq, length(CAST(body AS BLOB)) + 256 AS size FROM done ORDER BY seq LIMIT :limit
  )
)
WHERE before_bytes < :excess_bytes
