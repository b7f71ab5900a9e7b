"""Read models on PostgreSQL: a table for each generation, and a view of the live one."""
