"""Holdfast: a durable job queue that starts as one process with a write-ahead log and no server."""

__version__ = "0.1.0"
