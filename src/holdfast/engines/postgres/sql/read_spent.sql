-- How far the rate of a queue is spent.
SELECT p.spent_until_us FROM holdfast.policies AS p WHERE p.queue = %(queue)s::text
