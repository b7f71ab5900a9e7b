-- Remove a process from the registry.
DELETE FROM holdfast.workers AS w WHERE w.id = %(id)s::text
