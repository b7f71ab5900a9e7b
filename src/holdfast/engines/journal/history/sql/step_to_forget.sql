-- Where the next step ends, and when the first job of it finished.
SELECT max(seq), min(finished_at_us)
FROM (SELECT seq, finished_at_us FROM done WHERE seq > :after ORDER BY seq LIMIT :limit)
