-- What comes with a connection, for this transaction alone: a pooler in between does not pass it on.
SELECT
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    pg_catalog.set_config('lock_timeout', %(lock_timeout)s::pg_catalog.text, true)
