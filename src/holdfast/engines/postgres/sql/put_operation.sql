-- Insert or update an operation.
INSERT INTO holdfast.operations (id, started_at_us, ended_at_us, operation)
VALUES (
    %(id)s::text, %(started_at_us)s::bigint, %(ended_at_us)s::bigint, %(operation)s::bytea
)
ON CONFLICT (id) DO UPDATE SET
    ended_at_us = excluded.ended_at_us,
    operation = excluded.operation
