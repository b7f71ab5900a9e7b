-- The search_path that this session has.
SELECT pg_catalog.current_setting('search_path')
