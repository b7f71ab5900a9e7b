-- The conditions of a filter on the failure that a group has in common.
AND (%(error_reasons)s::text[] IS NULL OR t.error_reason = ANY (%(error_reasons)s::text[]))
AND (%(classes)s::text[] IS NULL OR t.failure_class = ANY (%(classes)s::text[]))
AND (%(statuses)s::int[] IS NULL OR coalesce(t.status, 0) = ANY (%(statuses)s::int[]))
AND (%(fingerprint)s::text IS NULL OR t.fingerprint = %(fingerprint)s::text)
AND (
    %(without_error_reasons)s::text[] IS NULL
    OR t.error_reason <> ALL (%(without_error_reasons)s::text[])
)
AND (
    %(without_classes)s::text[] IS NULL
    OR t.failure_class <> ALL (%(without_classes)s::text[])
)
