"""What people do: the CLI, the HTTP API and the console call only these operations."""
