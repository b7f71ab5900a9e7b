-- The audit can be searched by who, action, resource, tenant and time. What is searched follows from
-- the record itself, whichever version wrote it, so older code goes on.
-- readable_from: 1

-- [number, at_us, [action, resource_type, resource_id, user_id, changes, reason, tenant], …]; NULL if
-- the record cannot be read, which `audit verify` tells.
ALTER TABLE holdfast.audit
    ADD COLUMN entry jsonb GENERATED ALWAYS AS (holdfast.unpacked(record)) STORED;

CREATE INDEX audit_user ON holdfast.audit ((entry -> 2 ->> 3), number);
CREATE INDEX audit_resource ON holdfast.audit ((entry -> 2 ->> 2), number);
