"""The messages between a client engine and the process that owns the store."""
