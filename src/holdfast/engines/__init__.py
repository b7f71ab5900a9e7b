"""Where work is kept: ``contract`` is the interface, the packages beside it implement it."""
