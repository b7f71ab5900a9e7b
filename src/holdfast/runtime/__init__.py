"""Who moves the work: worker, loops, operations."""
