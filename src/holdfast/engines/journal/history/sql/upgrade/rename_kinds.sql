ALTER TABLE kinds RENAME TO old_kinds
