-- The points of the queues in a JSON array, or of all: each the greatest depths of its time, and sums.
SELECT
    queue, at_us / :step_us * :step_us AS start_us, max(pending), max(in_flight), max(blocked),
    max(dead), max(held), max(oldest_age_seconds), sum(enqueued), sum(completed), sum(retried),
    sum(died), sum(seconds)
FROM samples
WHERE tier = :tier AND at_us >= :from_us AND at_us < :to_us
    AND (:queues = '[]' OR queue IN (SELECT value FROM json_each(:queues)))
GROUP BY queue, start_us
ORDER BY queue, start_us
