"""The daemon's HTTP server: engine verbs for clients, operations, health and metrics."""

OPERATIONS = "/operations/v1/"
CONFIG = f"{OPERATIONS}config"
