-- Make a role without a login; who is no superuser must be a member to give it something.
DO $do$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %(role)s) THEN
        EXECUTE format('CREATE ROLE %%I NOLOGIN', %(role)s);
    END IF;
    IF NOT pg_has_role(%(role)s, 'SET') THEN
        EXECUTE format('GRANT %%I TO %%I', %(role)s, current_user);
    END IF;
END $do$
