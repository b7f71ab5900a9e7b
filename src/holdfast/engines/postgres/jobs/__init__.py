"""The verbs that move jobs on PostgreSQL: enqueue, claim, settle, and replies that were lost."""
