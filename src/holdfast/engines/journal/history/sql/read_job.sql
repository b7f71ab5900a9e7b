SELECT 'dead', dead.seq, crc, body
FROM dead JOIN dead_bodies ON dead_bodies.seq = dead.seq
WHERE id = :id AND tenant = :tenant
UNION ALL
SELECT 'done', seq, crc, body
FROM done
WHERE id = :id AND tenant = :tenant AND finished_at_us >= :forget_before_us
