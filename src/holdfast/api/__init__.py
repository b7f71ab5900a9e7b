"""The HTTP API: what a store offers over a network, to whoever has a key."""
