-- Take so many tokens, the lowest first.
SELECT nextval('holdfast.tokens') FROM generate_series(1, %(count)s::int)
