-- Delete the attempts and notes of jobs.
WITH gone AS (
    SELECT n.tenant, n.id
    FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
),
attempts_gone AS (
    DELETE FROM holdfast.attempts AS a USING gone AS g WHERE a.tenant = g.tenant AND a.id = g.id
)
DELETE FROM holdfast.notes AS n USING gone AS g WHERE n.tenant = g.tenant AND n.id = g.id
