-- The records of a kind, or those of these names.
SELECT r.kind, r.name, r.value, r.expires_at_us
FROM holdfast.records AS r
WHERE r.kind = %(kind)s::text
    AND (%(names)s::text[] IS NULL OR r.name = ANY (%(names)s::text[]))
ORDER BY r.name
