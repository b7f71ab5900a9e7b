-- The job of a key that goes before this one: one in flight, else the first unfinished or dead one.
SELECT f.*
FROM (
    (
        SELECT
            -- include job_columns j
        FROM holdfast.jobs AS j
        WHERE j.tenant = %(tenant)s::text AND j.queue = %(queue)s::text AND j.key = %(key)s::text
            AND j.id <> %(id)s::text
            AND (j.state = 2 OR j.key_seq < %(key_seq)s::bigint)
        ORDER BY j.state = 2 DESC, j.key_seq
        LIMIT 1
    )
    UNION ALL
    (
        SELECT
            -- include dead_columns d
        FROM holdfast.dead AS d
        WHERE d.tenant = %(tenant)s::text AND d.queue = %(queue)s::text AND d.key = %(key)s::text
            AND d.state = 5
            AND d.key_seq < %(key_seq)s::bigint
        ORDER BY d.key_seq
        LIMIT 1
    )
) AS f
ORDER BY f.state = 2 DESC, f.key_seq
LIMIT 1
