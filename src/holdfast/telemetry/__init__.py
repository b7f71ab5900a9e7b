"""Metrics, log output, and the engine wrappers that count and log."""
