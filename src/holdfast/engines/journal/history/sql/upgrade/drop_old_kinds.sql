DROP TABLE old_kinds
