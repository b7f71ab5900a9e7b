-- The conditions of a search of the audit; NULL means any.
AND (%(users)s::text[] IS NULL OR t.entry -> 2 ->> 3 = ANY (%(users)s::text[]))
AND (
    %(any_action)s::boolean
    OR t.entry -> 2 ->> 0 = ANY (%(actions)s::text[])
    OR EXISTS (
        SELECT FROM unnest(%(prefixes)s::text[]) AS p (prefix)
        WHERE starts_with(t.entry -> 2 ->> 0, p.prefix)
    )
)
AND (%(resource_type)s::text IS NULL OR t.entry -> 2 ->> 1 = %(resource_type)s::text)
AND (%(resource_id)s::text IS NULL OR t.entry -> 2 ->> 2 = %(resource_id)s::text)
AND (%(tenant)s::text IS NULL OR t.entry -> 2 ->> 6 = %(tenant)s::text)
AND (%(from_us)s::bigint IS NULL OR (t.entry ->> 1)::bigint >= %(from_us)s::bigint)
AND (%(to_us)s::bigint IS NULL OR (t.entry ->> 1)::bigint < %(to_us)s::bigint)
AND (
    %(text)s::text IS NULL
    OR strpos(lower((t.entry -> 2 ->> 5) COLLATE "C"), lower(%(text)s::text COLLATE "C")) > 0
)
