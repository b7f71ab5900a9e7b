"""The sockets between simulated processes: bytes arrive late, in pieces, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from .process import Process

if TYPE_CHECKING:
    from .world import World

Factory = Callable[[], asyncio.BaseProtocol]

CALM_DELAY_SECONDS = 0.002
"""How long a message, or the disk, takes at most when nothing is wrong."""


class Network:
    """Who listens where, and how badly connections are treated at the moment."""

    def __init__(self, world: World) -> None:
        self.cut_share = 0.0
        """Which share of all messages is the last one of its connection."""
        self.slowest_seconds = CALM_DELAY_SECONDS
        self._world = world
        self._rng = world.random("network")
        self._listeners: dict[str, tuple[Process, Factory]] = {}
        self._lines: dict[SimulatedConnection, None] = {}

    def listen(self, process: Process, path: str, factory: Factory) -> None:
        """Hand connections to this path to the process."""
        self._listeners[path] = process, factory

    def close(self, path: str) -> None:
        """Listen there no longer."""
        self._listeners.pop(path, None)

    async def connect(
        self, process: Process, factory: Factory, path: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to whoever listens; raise as the system does if nobody does."""
        await asyncio.sleep(self.delay_seconds())
        found = self._listeners.get(path)
        if found is None or not found[0].alive:
            raise ConnectionRefusedError(f"nobody listens on {path}")
        listener, listener_factory = found
        line = SimulatedConnection(self, process, listener)
        self._lines[line] = None
        protocol = factory()
        line.near.open(protocol)
        listener.call_soon(lambda: line.far.open(listener_factory()))
        return line.near, protocol

    def hang_up(self, process: Process) -> None:
        """End every connection of a process that is gone."""
        for path in [path for path, found in self._listeners.items() if found[0] is process]:
            del self._listeners[path]
        for line in list(self._lines):
            if process in (line.near.process, line.far.process):
                line.end()

    def forget(self, line: SimulatedConnection) -> None:
        """Take note that a connection has ended."""
        self._lines.pop(line, None)

    def delay_seconds(self) -> float:
        """Draw how long something is on its way."""
        return self._rng.uniform(0.00005, self.slowest_seconds)

    def fate(self, who: str) -> float | None:
        """Draw whether a message gets there: None, or how much of it does before the cut."""
        if not self.cut_share or self._rng.random() >= self.cut_share:
            return None
        arrives = self._rng.choice([0.0, 0.0, 0.5, 1.0, 1.0])
        kind = "answer" if who.startswith("owner") else "request"
        self._world.trace.note(f"fault.cut_{kind}", who, f"after {arrives:.0%}")
        return arrives

    def pieces(self, data: bytes) -> list[bytes]:
        """Draw in how many pieces a message arrives."""
        if len(data) < 2 or self._rng.random() > 0.1:
            return [data]
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]


class SimulatedConnection:
    """One connection: two ends."""

    def __init__(self, network: Network, near: Process, far: Process) -> None:
        self.network = network
        self.near = SocketEnd(self, near)
        self.far = SocketEnd(self, far)
        self.near.other, self.far.other = self.far, self.near

    def end(self) -> None:
        """Break it: whoever is left is told, after what was on its way."""
        self.network.forget(self)
        for one in (self.near, self.far):
            one.send(one.break_off)


class SocketEnd(asyncio.Transport):
    """One end of a connection, as a transport. What it writes goes to the other end."""

    other: SocketEnd

    def __init__(self, line: SimulatedConnection, process: Process) -> None:
        super().__init__()
        self.process = process
        self._line = line
        self._protocol: asyncio.BufferedProtocol | None = None
        self._closing = False
        self._lost = False
        self._reading = True
        self._held: list[Callable[[], None]] = []
        self._arrives_at = 0.0

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """Give it whoever is to hear of what comes."""
        self._protocol = cast(asyncio.BufferedProtocol, protocol)
        self._protocol.connection_made(self)
        held, self._held = self._held, []
        for one in held:
            one()

    # --- a transport -------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this to the other end."""
        if self._closing or not self.process.alive:
            return
        network, other, message = self._line.network, self.other, bytes(data)
        arrives = network.fate(self.process.name)
        if arrives is not None:
            message = message[: int(len(message) * arrives)]
        for piece in network.pieces(message):
            if piece:
                other.send(lambda piece=piece: other.receive(piece))  # type: ignore[misc]
        if arrives is not None:
            self._line.end()

    def write_eof(self) -> None:
        """Tell the other end that no more comes."""
        if not self._closing and self.process.alive:
            self.other.send(self.other.end_of_input)

    def can_write_eof(self) -> bool:
        """Whether it can tell: it can."""
        return True

    def close(self) -> None:
        """End it; what was written still arrives."""
        if not self._closing and self.process.alive:
            self._closing = True
            self.process.call_soon(self.break_off)
            self._line.end()

    def abort(self) -> None:
        """End it."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it is about to end."""
        return self._closing

    def pause_reading(self) -> None:
        """Hand over no more for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Go on."""
        self._reading = True
        held, self._held = self._held, []
        for one in held:
            self.process.call_soon(one)

    # --- what comes --------------------------------------------------------------------------

    def send(self, what: Callable[[], None]) -> None:
        """Have this happen here after a while, and after what was sent before."""
        if self.process.alive:
            now = self.process.time()
            self._arrives_at = max(now + self._line.network.delay_seconds(), self._arrives_at)
            self.process.call_at(self._arrives_at, what)

    def receive(self, data: bytes) -> None:
        """Hand over what has come."""
        if self._lost or self._closing:
            return
        if self._protocol is None or not self._reading:
            self._held.append(lambda: self.receive(data))
            return
        while data and not self._closing:
            room = memoryview(self._protocol.get_buffer(-1))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)

    def end_of_input(self) -> None:
        """Hand over that no more comes: as nobody asks to go on all the same, close."""
        if self._protocol is None:
            self._held.append(self.end_of_input)
        elif not self._closing and not self._protocol.eof_received():
            self.close()

    def break_off(self) -> None:
        """Tell that the connection has ended."""
        if self._protocol is None:
            self._held.append(self.break_off)
        elif not self._lost:
            self._lost = self._closing = True
            self._line.network.forget(self._line)
            self._protocol.connection_lost(None)
