-- The rights on a view that were granted to others, as they stand after GRANT.
SELECT
    a.privilege_type,
    CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
    a.is_grantable
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN aclexplode(c.relacl) AS a
WHERE n.nspname = %(schema)s::text AND c.relname = %(name)s::text AND a.grantee <> c.relowner
