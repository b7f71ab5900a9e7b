-- All statements of this transaction see one moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
