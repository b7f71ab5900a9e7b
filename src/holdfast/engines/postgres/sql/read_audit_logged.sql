-- The last entry of the audit that some process has logged.
SELECT l.number FROM holdfast.audit_logged AS l
