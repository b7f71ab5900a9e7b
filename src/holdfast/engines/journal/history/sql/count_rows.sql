-- How many rows of dead there are for all, and for this tenant.
SELECT
  (SELECT coalesce(sum(count), 0) FROM kinds),
  (
    SELECT coalesce(sum(count), 0) FROM tallies
    WHERE tenant = :tenant AND state IN ('dead', 'archived')
  )
