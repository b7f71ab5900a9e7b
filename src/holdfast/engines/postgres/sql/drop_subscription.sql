-- Remove a subscription.
DELETE FROM holdfast.subscriptions AS s WHERE s.name = %(name)s::text
