"""The long-running process: owns the store, runs the worker and the loops, answers on a socket."""
