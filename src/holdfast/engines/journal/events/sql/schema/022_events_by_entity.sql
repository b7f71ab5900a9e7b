CREATE INDEX events_by_entity ON events (entity_id, entity_type)
