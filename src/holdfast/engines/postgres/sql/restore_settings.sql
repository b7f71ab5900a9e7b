-- Give the caller's transaction back what replace_settings has replaced.
SELECT
    pg_catalog.set_config('search_path', pg_catalog.current_setting('holdfast_caller.search_path'), true),
    pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('holdfast_caller.lock_timeout'), true)
