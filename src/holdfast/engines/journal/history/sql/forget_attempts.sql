DELETE FROM attempts
WHERE seq IN (
  SELECT attempts.seq
  FROM done CROSS JOIN attempts INDEXED BY attempts_by_job
    ON attempts.id = done.id
    AND attempts.tenant = done.tenant
    AND attempts.created_at_us = done.created_at_us
  WHERE done.seq > :after AND done.seq <= :until AND done.finished_at_us < :before_us
)
