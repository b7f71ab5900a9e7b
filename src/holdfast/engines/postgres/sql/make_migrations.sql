-- readable_from: code that has the migration of this number, or a later one, can work with it.
CREATE TABLE holdfast.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    readable_from integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
