-- Store what people did with a group; its deaths so far are in it.
INSERT INTO holdfast.group_lives (id, first_at_us, last_at_us, total, life)
VALUES (
    %(id)s::text, %(first_at_us)s::bigint, %(last_at_us)s::bigint, %(total)s::bigint, %(life)s::bytea
)
ON CONFLICT (id) DO UPDATE SET
    first_at_us = excluded.first_at_us,
    life = excluded.life
