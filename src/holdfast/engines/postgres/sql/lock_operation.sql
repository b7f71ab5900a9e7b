-- Lock and return an operation.
SELECT o.operation FROM holdfast.operations AS o WHERE o.id = %(id)s::text FOR UPDATE
