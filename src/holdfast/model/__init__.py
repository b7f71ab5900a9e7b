"""The rules of jobs, the same for every engine: no I/O, no clock, no randomness."""
