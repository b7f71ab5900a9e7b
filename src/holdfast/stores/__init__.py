"""Opening, filling and moving stores: the one place that knows every engine."""
