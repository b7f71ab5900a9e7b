-- For statements in a transaction of the caller's: our search_path, and a time-out of locks if there is
-- none. What the caller has is remembered first (CASE sees to the order), see restore_settings.
SELECT
    CASE
        WHEN
            pg_catalog.set_config(
                'holdfast_caller.search_path', pg_catalog.current_setting('search_path'), true
            ) IS NOT NULL
            THEN pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)
    END,
    CASE
        WHEN
            pg_catalog.set_config(
                'holdfast_caller.lock_timeout', pg_catalog.current_setting('lock_timeout'), true
            ) OPERATOR(pg_catalog.=) '0'
            THEN pg_catalog.set_config('lock_timeout', %(lock_timeout)s::pg_catalog.text, true)
    END
