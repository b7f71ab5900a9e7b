-- Begin the next version of the subscriptions, and return it.
WITH following AS (
    UPDATE holdfast.fanout AS f SET version = f.version + 1 RETURNING f.version
)
INSERT INTO holdfast.fanout_marks (version, made_by)
SELECT n.version, pg_current_xact_id() FROM following AS n
RETURNING version
