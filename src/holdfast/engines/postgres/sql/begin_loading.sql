-- From here on nobody uses what is there.
INSERT INTO holdfast.loading (digest) VALUES (%(digest)s::bytea)
