-- Take some keys that have to be lined up, of these queues or of all, beyond this place; others take
-- others.
DELETE FROM holdfast.fresh_keys AS f
USING (
    SELECT k.ctid AS spot
    FROM holdfast.fresh_keys AS k
    WHERE (%(queues)s::text[] IS NULL OR k.queue = ANY (%(queues)s::text[]))
        AND k.place > %(after)s::bigint
    LIMIT %(limit)s::int
    FOR UPDATE SKIP LOCKED
) AS t
WHERE f.ctid = t.spot
RETURNING f.tenant, f.queue, f.key
