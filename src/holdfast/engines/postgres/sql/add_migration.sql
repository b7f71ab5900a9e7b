INSERT INTO holdfast.migrations (number, name, checksum, readable_from)
VALUES (%(number)s, %(name)s, %(checksum)s, %(readable_from)s)
