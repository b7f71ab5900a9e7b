-- Act as the owner of this schema until the end of the transaction, if that is a role without a login
-- and this user is a member of it: then what is made belongs to all members alike.
SELECT pg_catalog.set_config('role', r.rolname::text, true)
FROM pg_namespace AS n
JOIN pg_roles AS r ON r.oid = n.nspowner
WHERE n.nspname = %(schema)s
    AND NOT r.rolcanlogin AND NOT r.rolsuper AND NOT starts_with(r.rolname::text, 'pg_')
    AND r.rolname <> current_user
    AND pg_has_role(r.oid, 'SET')
