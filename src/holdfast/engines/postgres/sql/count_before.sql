-- How many due jobs of a queue without limits come before this one, up to a limit; and whether it is
-- due and in line itself.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM holdfast.jobs AS j
            WHERE j.line = 1
                AND holdfast.queue_number(j.queue) = holdfast.queue_number(%(queue)s::text)
                AND j.queue = %(queue)s::text
                AND j.run_at_us <= %(at_us)s::bigint
                AND (j.expires_at_us IS NULL OR j.expires_at_us > %(at_us)s::bigint)
                AND (-j.priority, j.run_at_us, j.seq)
                    < (-%(priority)s::smallint, %(run_at_us)s::bigint, %(seq)s::bigint)
            LIMIT %(limit)s::int
        ) AS b
    ),
    EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.tenant = %(tenant)s::text AND j.id = %(id)s::text
            AND j.line = 1
            AND j.run_at_us <= %(at_us)s::bigint
            AND (j.expires_at_us IS NULL OR j.expires_at_us > %(at_us)s::bigint)
    )
