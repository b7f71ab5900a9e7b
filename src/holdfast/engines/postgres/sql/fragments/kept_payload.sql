-- The payload of a job that finishes, if it is kept.
CASE WHEN coalesce(
    (SELECT p.keep_payload FROM holdfast.policies AS p WHERE p.queue = t.queue),
    %(keep_payload)s::boolean
) THEN t.payload END
