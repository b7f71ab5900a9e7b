"""What is served over HTTP: the engine's verbs to clients, and the routes handed in."""
