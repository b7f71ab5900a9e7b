-- Say something to everybody who listens.
SELECT pg_notify(%(channel)s::text, %(text)s::text)
