"""Who may do what: checks every verb of an engine against the table of roles."""
