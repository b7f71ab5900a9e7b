-- The size of done, if it is not what is stored.
SELECT json_group_array(json_array('stored', stored.bytes, 'recounted', recount.bytes))
FROM done_size AS stored
JOIN (SELECT coalesce(sum(length(CAST(body AS BLOB)) + 256), 0) AS bytes FROM done) AS recount
WHERE stored.bytes <> recount.bytes
