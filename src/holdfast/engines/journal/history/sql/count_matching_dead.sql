SELECT count(*) FROM (SELECT 1 FROM dead WHERE {where} LIMIT :limit)
