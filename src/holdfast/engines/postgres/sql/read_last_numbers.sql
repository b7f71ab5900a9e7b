-- The last sequence number and the last token that were assigned.
SELECT
    (SELECT CASE WHEN p.is_called THEN p.last_value + 65535 ELSE 0 END FROM holdfast.places AS p),
    (SELECT CASE WHEN t.is_called THEN t.last_value ELSE 0 END FROM holdfast.tokens AS t)
