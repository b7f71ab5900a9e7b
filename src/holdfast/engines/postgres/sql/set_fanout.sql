-- Set the version of the subscriptions, after a load.
UPDATE holdfast.fanout AS f SET version = greatest(f.version, %(fanout_version)s::bigint)
