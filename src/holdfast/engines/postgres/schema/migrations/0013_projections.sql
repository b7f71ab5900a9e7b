-- What is stored about projections. Their read models are tables in a schema of their own, see the
-- setting projection_schema; here is how far each is filled.
-- readable_from: 1

CREATE TABLE holdfast.projections (name text COLLATE "C" PRIMARY KEY, state jsonb NOT NULL);

-- How far the rebuild of a generation has come: written with the rows that it is about.
CREATE TABLE holdfast.fill_positions (
    table_name text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    position jsonb NOT NULL,
    PRIMARY KEY (table_name, generation)
) WITH (fillfactor = 50);

-- Jobs whose rows a rebuild has written: when they run they are only settled.
CREATE TABLE holdfast.covered_jobs (
    table_name text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (table_name, generation, tenant, id)
);
