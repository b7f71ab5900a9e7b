"""The only door for people: the CLI, the HTTP API and the console call these operations."""
