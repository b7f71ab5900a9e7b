"""What the journal keeps in memory: an index per question, ready queues, ordering, limits."""
