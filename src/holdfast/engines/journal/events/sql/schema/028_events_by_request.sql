CREATE INDEX events_by_request ON events (request_id) WHERE request_id <> ''
