-- The settings that decide whether acknowledged work survives.
SELECT s.name, s.setting
FROM pg_catalog.pg_settings AS s
WHERE s.name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'server_version')
