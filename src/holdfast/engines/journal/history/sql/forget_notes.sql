DELETE FROM notes
WHERE seq IN (
  SELECT notes.seq
  FROM done CROSS JOIN notes INDEXED BY notes_by_job
    ON notes.id = done.id
    AND notes.tenant = done.tenant
    AND notes.created_at_us = done.created_at_us
  WHERE done.seq > :after AND done.seq <= :until AND done.finished_at_us < :before_us
)
