-- Finished jobs keep their payload, unless the policy of their queue or the setting says otherwise.
-- Older code goes on: what it finishes has no payload, and it sets no policy on payloads.
-- readable_from: 1

ALTER TABLE holdfast.history ADD COLUMN payload bytea;
ALTER TABLE holdfast.policies ADD COLUMN keep_payload boolean;
