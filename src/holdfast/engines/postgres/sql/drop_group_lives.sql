-- Forget what people did with these groups, and the deaths that are not added yet.
WITH gone AS (
    DELETE FROM holdfast.group_deaths WHERE id = ANY (%(ids)s::text[])
)
DELETE FROM holdfast.group_lives WHERE id = ANY (%(ids)s::text[])
