CREATE INDEX events_by_actor ON events (actor_id)
