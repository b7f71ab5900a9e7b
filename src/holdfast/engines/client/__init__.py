"""The client engine: the verbs of a store that another process on this machine owns."""
