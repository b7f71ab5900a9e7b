"""What people do on a PostgreSQL store: queries, actions on jobs, policies, the audit log."""
