"""What is true of a job, whoever keeps it: no I/O, no clock, no randomness of its own."""
