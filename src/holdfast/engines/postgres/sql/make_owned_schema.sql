-- Make a schema of this role, or give it to the role.
DO $do$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s) THEN
        EXECUTE format('CREATE SCHEMA %%I', %(schema)s);
    END IF;
    EXECUTE format('ALTER SCHEMA %%I OWNER TO %%I', %(schema)s, %(role)s);
END $do$
