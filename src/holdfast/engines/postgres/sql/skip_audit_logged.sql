-- Count the whole audit as logged: it comes from another store.
UPDATE holdfast.audit_logged
SET number = (SELECT coalesce(max(a.number), 0) FROM holdfast.audit AS a)
