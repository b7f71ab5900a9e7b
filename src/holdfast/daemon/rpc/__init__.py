"""What is served over HTTP: the engine's verbs to clients, and the routes handed in."""

OPERATIONS = "/operations/v1/"
"""Where the routes of people's work begin."""
