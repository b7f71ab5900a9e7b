"""The memory engine: nothing is durable; it is the oracle for the others."""
