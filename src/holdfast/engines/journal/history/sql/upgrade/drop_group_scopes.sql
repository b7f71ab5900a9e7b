DROP TABLE group_scopes
