-- The answers to a command so far.
SELECT c.answer
FROM holdfast.worker_commands AS c
WHERE c.id = %(id)s::text AND c.answer IS NOT NULL
ORDER BY c.number
