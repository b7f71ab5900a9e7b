INSERT INTO tallies (tenant, queue, state, count)
SELECT tenant, queue, state, count(*) FROM done WHERE seq BETWEEN :first AND :last
GROUP BY tenant, queue, state
ON CONFLICT DO UPDATE SET count = tallies.count + excluded.count
