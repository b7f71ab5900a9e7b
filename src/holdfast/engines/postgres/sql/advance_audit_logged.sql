-- Remember that the audit is logged up to this entry.
UPDATE holdfast.audit_logged SET number = %(number)s::bigint
