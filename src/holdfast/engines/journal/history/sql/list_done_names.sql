SELECT json_group_array(json_array(seq, tenant, id))
FROM (SELECT seq, tenant, id FROM done WHERE seq > :after ORDER BY seq LIMIT :limit)
