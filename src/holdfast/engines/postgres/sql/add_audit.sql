-- Append records to the audit.
INSERT INTO holdfast.audit (number, hash, record)
SELECT n.number, n.hash, n.record
FROM unnest(%(numbers)s::bigint[], %(hashes)s::text[], %(records)s::bytea[])
    AS n (number, hash, record)
