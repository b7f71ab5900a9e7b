-- The policies of queues that have one.
SELECT p.queue, p.policy FROM holdfast.policies AS p ORDER BY p.queue
