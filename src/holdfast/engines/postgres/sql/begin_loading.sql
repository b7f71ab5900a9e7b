-- Mark the tables as being loaded: no engine opens them.
INSERT INTO holdfast.loading (digest) VALUES (%(digest)s::bytea)
