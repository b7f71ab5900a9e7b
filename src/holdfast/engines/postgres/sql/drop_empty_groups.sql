-- Forget the groups that have no dead letters, of any tenant or hour.
DELETE FROM holdfast.dead_groups AS g
WHERE g.count = 0 AND NOT EXISTS (SELECT FROM holdfast.dead_tallies AS t WHERE t.number = g.number)
