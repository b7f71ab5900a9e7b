"""Sockets between simulated processes: bytes arrive late, in pieces, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from .process import Process

if TYPE_CHECKING:
    from .world import World

Factory = Callable[[], asyncio.BaseProtocol]

NORMAL_DELAY_SECONDS = 0.002
"""The longest delay of a message or disk call without faults."""


class Network:
    """Listeners, connections, and the network faults active now."""

    def __init__(self, world: World) -> None:
        self.cut_share = 0.0
        """The share of messages after which the connection breaks."""
        self.slowest_seconds = NORMAL_DELAY_SECONDS
        self._world = world
        self._rng = world.random("network")
        self._listeners: dict[str, tuple[Process, Factory]] = {}
        self._connections: dict[SimulatedConnection, None] = {}

    def listen(self, process: Process, path: str, factory: Factory) -> None:
        """Let the process accept connections to this path."""
        self._listeners[path] = process, factory

    def close(self, path: str) -> None:
        """Stop listening on this path."""
        self._listeners.pop(path, None)

    async def connect(
        self, process: Process, factory: Factory, path: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the listener of this path, or raise ``ConnectionRefusedError``."""
        await asyncio.sleep(self.delay_seconds())
        found = self._listeners.get(path)
        if found is None or not found[0].alive:
            raise ConnectionRefusedError(f"no process listens on {path}")
        listener, listener_factory = found
        connection = SimulatedConnection(self, process, listener)
        self._connections[connection] = None
        protocol = factory()
        connection.near.open(protocol)
        listener.call_soon(lambda: connection.far.open(listener_factory()))
        return connection.near, protocol

    def drop_connections(self, process: Process) -> None:
        """Break every connection of a process that has ended."""
        for path in [path for path, found in self._listeners.items() if found[0] is process]:
            del self._listeners[path]
        for connection in list(self._connections):
            if process in (connection.near.process, connection.far.process):
                connection.end()

    def forget(self, connection: SimulatedConnection) -> None:
        """Remove a connection that has ended."""
        self._connections.pop(connection, None)

    def delay_seconds(self) -> float:
        """Draw the delay of a message."""
        return self._rng.uniform(0.00005, self.slowest_seconds)

    def draw_cut(self, process: str) -> float | None:
        """Draw whether a message breaks its connection: the share that still arrives, or None."""
        if not self.cut_share or self._rng.random() >= self.cut_share:
            return None
        arrives = self._rng.choice([0.0, 0.0, 0.5, 1.0, 1.0])
        kind = "answer" if process.startswith("owner") else "request"
        self._world.trace.note(f"fault.cut_{kind}", process, f"after {arrives:.0%}")
        return arrives

    def split(self, data: bytes) -> list[bytes]:
        """Split a message into the pieces in which it arrives."""
        if len(data) < 2 or self._rng.random() > 0.1:
            return [data]
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]


class SimulatedConnection:
    """One connection with its two ends."""

    def __init__(self, network: Network, near: Process, far: Process) -> None:
        self.network = network
        self.near = SocketEnd(self, near)
        self.far = SocketEnd(self, far)
        self.near.other, self.far.other = self.far, self.near

    def end(self) -> None:
        """Break it; each end learns of it after the data in flight."""
        self.network.forget(self)
        for one in (self.near, self.far):
            one.deliver(one.lose_connection)


class SocketEnd(asyncio.Transport):
    """One end of a connection, as a transport. It writes to the other end."""

    other: SocketEnd

    def __init__(self, connection: SimulatedConnection, process: Process) -> None:
        super().__init__()
        self.process = process
        self._connection = connection
        self._protocol: asyncio.BufferedProtocol | None = None
        self._closing = False
        self._lost = False
        self._reading = True
        self._held_messages: list[Callable[[], None]] = []
        self._arrives_at = 0.0

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """Attach the protocol and deliver what has arrived already."""
        self._protocol = cast(asyncio.BufferedProtocol, protocol)
        self._protocol.connection_made(self)
        held, self._held_messages = self._held_messages, []
        for one in held:
            one()

    # --- a transport -------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data to the other end."""
        if self._closing or not self.process.alive:
            return
        network, other, message = self._connection.network, self.other, bytes(data)
        arrives = network.draw_cut(self.process.name)
        if arrives is not None:
            message = message[: int(len(message) * arrives)]
        for piece in network.split(message):
            if piece:
                other.deliver(lambda piece=piece: other.receive(piece))  # type: ignore[misc]
        if arrives is not None:
            self._connection.end()

    def write_eof(self) -> None:
        """Send end-of-file to the other end."""
        if not self._closing and self.process.alive:
            self.other.deliver(self.other.end_of_input)

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close it; written data still arrives."""
        if not self._closing and self.process.alive:
            self._closing = True
            self.process.call_soon(self.lose_connection)
            self._connection.end()

    def abort(self) -> None:
        """Close it."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._closing

    def pause_reading(self) -> None:
        """Stop delivering data to the protocol."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver held data and continue."""
        self._reading = True
        held, self._held_messages = self._held_messages, []
        for one in held:
            self.process.call_soon(one)

    # --- delivery ----------------------------------------------------------------------------

    def deliver(self, action: Callable[[], None]) -> None:
        """Run the action at this end after a delay, in the order of sending."""
        if self.process.alive:
            now = self.process.time()
            self._arrives_at = max(now + self._connection.network.delay_seconds(), self._arrives_at)
            self.process.call_at(self._arrives_at, action)

    def receive(self, data: bytes) -> None:
        """Pass arrived data to the protocol."""
        if self._lost or self._closing:
            return
        if self._protocol is None or not self._reading:
            self._held_messages.append(lambda: self.receive(data))
            return
        while data and not self._closing:
            room = memoryview(self._protocol.get_buffer(-1))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)

    def end_of_input(self) -> None:
        """Pass end-of-file to the protocol; close unless it asks to keep the connection open."""
        if self._protocol is None:
            self._held_messages.append(self.end_of_input)
        elif not self._closing and not self._protocol.eof_received():
            self.close()

    def lose_connection(self) -> None:
        """Tell the protocol that the connection is lost."""
        if self._protocol is None:
            self._held_messages.append(self.lose_connection)
        elif not self._lost:
            self._lost = self._closing = True
            self._connection.network.forget(self._connection)
            self._protocol.connection_lost(None)
