SELECT count(*) FROM (SELECT 1 FROM dead {indexed} WHERE {where} LIMIT :limit)
