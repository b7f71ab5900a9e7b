-- Lock the end of the audit until the end of the transaction.
SELECT l.name FROM holdfast.loops AS l WHERE l.name = 'audit' FOR UPDATE
