SELECT count(*) FROM events WHERE {where}
