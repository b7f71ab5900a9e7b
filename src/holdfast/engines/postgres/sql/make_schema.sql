-- Not IF NOT EXISTS: who may not make schemas may still be given one.
DO $do$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s) THEN
        EXECUTE format('CREATE SCHEMA %%I', %(schema)s);
    END IF;
END $do$
