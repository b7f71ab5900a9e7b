-- Send a notification.
SELECT pg_notify(%(channel)s::text, %(text)s::text)
