SELECT count(*) FROM (SELECT 1 FROM done WHERE {where} LIMIT :limit)
