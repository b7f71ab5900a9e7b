-- Whom these kinds of one shape hit.
SELECT json_group_array(json_array(tenant, scope))
FROM group_scopes
WHERE count > 0 AND shape = :shape AND kind IN (SELECT value FROM json_each(:kinds))
