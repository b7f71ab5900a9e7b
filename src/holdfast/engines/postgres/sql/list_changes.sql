-- A mark for each topic: how many rows it has, and the sum of the transactions that wrote them. It
-- differs when a row was added, changed or removed.
SELECT c.tenant, c.topic, string_agg(c.mark, ';' ORDER BY c.mark)
FROM (
    SELECT
        j.tenant,
        'queue:' || j.queue AS topic,
        'j' || count(*) || ',' || sum(j.xmin::text::bigint) AS mark
    FROM holdfast.jobs AS j
    GROUP BY j.tenant, j.queue
    UNION ALL
    SELECT
        d.tenant,
        'queue:' || d.queue,
        'd' || count(*) || ',' || sum(d.xmin::text::bigint)
    FROM holdfast.dead AS d
    GROUP BY d.tenant, d.queue
    UNION ALL
    SELECT '', 'operations', count(*) || ',' || coalesce(sum(o.xmin::text::bigint), 0)
    FROM holdfast.operations AS o
    UNION ALL
    SELECT '', 'audit', coalesce(max(a.number), 0)::text
    FROM holdfast.audit AS a
) AS c
GROUP BY c.tenant, c.topic
ORDER BY c.tenant, c.topic
LIMIT %(limit)s::int
