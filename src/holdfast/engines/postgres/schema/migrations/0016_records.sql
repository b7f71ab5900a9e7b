-- What services on top of a store keep in it: keys, sessions, quotas.
-- readable_from: 1

CREATE TABLE holdfast.records (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    expires_at_us bigint NOT NULL,
    PRIMARY KEY (kind, name)
);
