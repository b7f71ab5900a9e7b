-- Outages of dependencies. Older code goes on, but neither holds claims back nor spares failed jobs.
-- readable_from: 1

-- The dependency of a queue: what follows the last @ in its name, else its name.
CREATE FUNCTION holdfast.dependency_of(queue text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(nullif(substring(queue FROM '[^@]*$'), ''), queue);

CREATE TABLE holdfast.outages (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dependency text COLLATE "C" NOT NULL,
    ended_at_us bigint,
    outage bytea NOT NULL
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX outages_open ON holdfast.outages (dependency) WHERE ended_at_us IS NULL;
