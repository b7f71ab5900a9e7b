-- For statements in a transaction of the caller's: our search_path, and a time-out of locks if there is
-- none. What the caller has is remembered, see restore_settings.
SELECT
    pg_catalog.set_config('holdfast_caller.search_path', s.path, true),
    pg_catalog.set_config('holdfast_caller.lock_timeout', s.timeout, true),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    pg_catalog.set_config(
        'lock_timeout',
        CASE
            WHEN s.timeout OPERATOR(pg_catalog.=) '0' THEN %(lock_timeout)s::pg_catalog.text
            ELSE s.timeout
        END,
        true
    )
FROM (
    SELECT
        pg_catalog.current_setting('search_path') AS path,
        pg_catalog.current_setting('lock_timeout') AS timeout
    OFFSET 0
) AS s
