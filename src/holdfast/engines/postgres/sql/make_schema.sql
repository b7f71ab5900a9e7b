-- Not CREATE SCHEMA IF NOT EXISTS: a user without that right may have been given a schema.
DO $do$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s) THEN
        EXECUTE format('CREATE SCHEMA %%I', %(schema)s);
    END IF;
END $do$
