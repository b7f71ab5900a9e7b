DROP TABLE groups
