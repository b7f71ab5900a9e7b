DROP TABLE group_tenants
