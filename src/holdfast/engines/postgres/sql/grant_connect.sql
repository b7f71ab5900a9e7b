-- Let these roles connect to this database.
DO $do$ BEGIN
    EXECUTE format(
        'GRANT CONNECT ON DATABASE %%I TO %%I, %%I, %%I',
        current_database(), %(migrate)s, %(run)s, %(read)s
    );
END $do$
