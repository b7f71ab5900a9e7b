-- Record notes, in this order.
INSERT INTO holdfast.notes (tenant, id, made_us, note)
SELECT n.tenant, n.id, n.made_us, n.note
FROM unnest(
    %(tenants)s::text[], %(ids)s::text[], %(made_us)s::bigint[], %(notes)s::bytea[]
) WITH ORDINALITY AS n (tenant, id, made_us, note, number)
ORDER BY n.number
