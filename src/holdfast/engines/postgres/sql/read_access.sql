-- Who this user is, who else may connect, and what could get in the way of Holdfast.
SELECT
    r.rolname::text,
    r.rolsuper,
    r.rolcreaterole OR r.rolcreatedb OR r.rolbypassrls OR r.rolreplication,
    EXISTS (
        SELECT FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname = 'jobs' AND pg_has_role(c.relowner, 'USAGE')
    ),
    EXISTS (
        SELECT FROM pg_database AS d
        CROSS JOIN aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS a
        WHERE d.datname = current_database() AND a.grantee = 0 AND a.privilege_type = 'CONNECT'
    ),
    array(
        SELECT f.name
        FROM unnest(%(functions)s::text[]) AS f (name)
        WHERE NOT coalesce(has_function_privilege(to_regprocedure(f.name), 'EXECUTE'), false)
    ),
    array(
        SELECT format('%%s (process %%s)', a.usename, a.pid)
        FROM pg_locks AS l
        JOIN pg_stat_activity AS a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()
            AND NOT has_schema_privilege(a.usesysid, %(schema)s, 'USAGE')
        GROUP BY a.usename, a.pid
        ORDER BY a.pid
        LIMIT 5
    ),
    array(
        SELECT p.oid::regprocedure::text
        FROM pg_proc AS p
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', %(schema)s)
            AND EXISTS (
                SELECT FROM pg_proc AS s
                WHERE s.proname = p.proname AND s.pronamespace = 'pg_catalog'::regnamespace
            )
            AND NOT EXISTS (
                SELECT FROM pg_depend AS e
                WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e'
            )
        UNION ALL
        SELECT o.oid::regoperator::text
        FROM pg_operator AS o
        JOIN pg_namespace AS n ON n.oid = o.oprnamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', %(schema)s)
            AND EXISTS (
                SELECT FROM pg_operator AS s
                WHERE s.oprname = o.oprname AND s.oprnamespace = 'pg_catalog'::regnamespace
            )
            AND NOT EXISTS (
                SELECT FROM pg_depend AS e
                WHERE e.classid = 'pg_operator'::regclass AND e.objid = o.oid AND e.deptype = 'e'
            )
        ORDER BY 1
        LIMIT 5
    )
FROM pg_roles AS r
WHERE r.rolname = current_user
