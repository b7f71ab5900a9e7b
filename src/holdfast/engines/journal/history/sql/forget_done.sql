DELETE FROM done
WHERE seq > :after AND seq <= :until AND finished_at_us < :before_us
