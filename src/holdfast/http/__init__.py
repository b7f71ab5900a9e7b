"""The HTTP front: connections with limits, for calls on the socket, probes and ASGI."""
