"""Samples of the queues, in an expendable file of their own."""
