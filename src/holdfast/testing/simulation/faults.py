"""The faults of a run: which, when and to whom is drawn from the seed."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.job import MICROSECONDS
from holdfast.testing.disk import Fault

from .network import CALM_DELAY_SECONDS
from .process import Process
from .world import World

_SEGMENTS_LEFT = 2


class FaultInjector:
    """Makes faults happen while the storm lasts, and makes everything good at its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.random("weather")
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (5, self._kill_owner_between_turns),
            (6, self._kill_owner_at_a_disk_call),
            (2, self._stop_owner),
            (5, self._pause_owner),
            (4, self._pause_remote),
            (3, self._kill_remote),
            (2, self._stop_remote),
            (2, self._kill_client),
            (1, self._pause_client),
            (3, self._leap),
            (2, self._skew),
            (3, self._slow_disk),
            (2, self._failing_disk),
            (2, self._short_write),
            (2, self._full_disk),
            (4, self._cut_connections),
            (2, self._slow_network),
            (2, self._resize),
        ]

    def brew(self) -> None:
        """Draw the faults of this run and when they come."""
        scenario = self._world.scenario
        for _ in range(scenario.faults):
            when = self._rng.uniform(0.0, scenario.storm_seconds)
            kind = self._rng.choices(
                [kind for _weight, kind in self._kinds], [weight for weight, _kind in self._kinds]
            )[0]
            self._world.loop.call_later(when, self._happen, kind)

    def clear_up(self) -> None:
        """End every fault that lasts."""
        world = self._world
        world.stormy = False
        world.network.cut_share = 0.0
        world.network.slowest_seconds = world.slowest_disk_seconds = CALM_DELAY_SECONDS
        world.disk.capacity_bytes = None
        world.disk.faults.clear()
        for process in world.processes:
            process.turns_left = None
            if process.paused and process.alive:
                world.resume(process)
        world.trace.note("weather.clear", "weather")

    def _happen(self, kind: Callable[[], None]) -> None:
        if self._world.stormy:
            kind()

    # --- the owner ---------------------------------------------------------------------------

    def _kill_owner_between_turns(self) -> None:
        if self._owner is not None:
            self._owner.turns_left = self._rng.randint(0, 200)

    def _kill_owner_at_a_disk_call(self) -> None:
        self._fault(Fault.KILL, self._rng.randint(1, 40))

    def _stop_owner(self) -> None:
        daemon = self._world.daemon
        if daemon is not None and self._owner is not None:
            self._note("stop", self._owner)
            self._owner.call_soon(daemon.ask_to_stop)

    def _pause_owner(self) -> None:
        self._pause(self._owner)

    def _resize(self) -> None:
        daemon, owner = self._world.daemon, self._owner
        if daemon is not None and daemon.worker is not None and owner is not None:
            slots = self._rng.randint(1, 5)
            self._note("resize", owner, str(slots))
            worker = daemon.worker
            owner.call_soon(lambda: worker.resize(slots))

    # --- the disk ----------------------------------------------------------------------------

    def _failing_disk(self) -> None:
        self._world.excuse()
        self._fault(Fault.EIO, self._rng.randint(1, 20))

    def _short_write(self) -> None:
        self._fault(Fault.SHORT, self._rng.randint(1, 10))

    def _slow_disk(self) -> None:
        world = self._world
        world.slowest_disk_seconds = self._rng.choice([0.05, 0.5, 3.0])
        world.trace.note("fault.slow_disk", "machine", f"{world.slowest_disk_seconds:g} s")
        self._later(
            self._rng.uniform(0.5, 4),
            lambda: setattr(world, "slowest_disk_seconds", CALM_DELAY_SECONDS),
        )

    def _full_disk(self) -> None:
        disk = self._world.disk
        used = sum(
            len(disk.content(name)) for place in ("log", "snapshots") for name in disk.names(place)
        )
        disk.capacity_bytes = used + self._rng.randint(0, _SEGMENTS_LEFT) * 8192
        self._world.trace.note("fault.full_disk", "machine")
        self._later(self._rng.uniform(0.5, 4), self._make_room)

    def _make_room(self) -> None:
        self._world.disk.capacity_bytes = None

    def _fault(self, fault: Fault, calls: int) -> None:
        disk = self._world.disk
        disk.faults[disk.calls + calls] = fault
        self._world.trace.note(f"fault.planned_{fault}", "machine", f"in {calls} calls")

    # --- the others --------------------------------------------------------------------------

    def _pause_remote(self) -> None:
        self._pause(self._remote())

    def _kill_remote(self) -> None:
        process = self._remote()
        if process is not None:
            process.turns_left = self._rng.randint(0, 50)

    def _stop_remote(self) -> None:
        living = [found for found in self._world.remotes.values() if found[0].alive]
        if living:
            process, remote = self._rng.choice(living)
            self._note("stop", process)
            remote.ask_to_stop()

    def _kill_client(self) -> None:
        process = self._client()
        if process is not None:
            process.turns_left = self._rng.randint(0, 50)

    def _pause_client(self) -> None:
        self._pause(self._client())

    # --- time and the network ----------------------------------------------------------------

    def _leap(self) -> None:
        self._world.leap(self._rng.choice([-3_600.0, -2.0, 0.7, 5.0, 60.0, 3_600.0]))

    def _skew(self) -> None:
        """Set the clock of one process alone."""
        process = self._rng.choice([self._remote, self._client])()
        if process is not None:
            seconds = self._rng.choice([-40.0, 3.0, 900.0])
            process.skew_us += int(seconds * MICROSECONDS)
            self._note("skew", process, f"{seconds:g} s")

    def _cut_connections(self) -> None:
        network = self._world.network
        network.cut_share = self._rng.choice([0.02, 0.1, 0.3])
        self._later(self._rng.uniform(0.5, 4), lambda: setattr(network, "cut_share", 0.0))

    def _slow_network(self) -> None:
        network = self._world.network
        network.slowest_seconds = self._rng.choice([0.05, 0.5])
        self._world.trace.note("fault.slow_network", "machine")
        self._later(
            self._rng.uniform(0.5, 3),
            lambda: setattr(network, "slowest_seconds", CALM_DELAY_SECONDS),
        )

    # --- who and when ------------------------------------------------------------------------

    @property
    def _owner(self) -> Process | None:
        owner = self._world.owner
        return owner if owner is not None and owner.alive else None

    def _remote(self) -> Process | None:
        living = [process for process, _remote in self._world.remotes.values() if process.alive]
        return self._rng.choice(living) if living else None

    def _client(self) -> Process | None:
        living = [process for process in self._world.clients.values() if process.alive]
        return self._rng.choice(living) if living else None

    def _pause(self, process: Process | None) -> None:
        if process is None or process.paused:
            return
        seconds = self._rng.choice([0.3, 2.0, 5.0, 9.0])
        self._note("pause", process, f"{seconds:g} s")
        process.pause()

        def resume() -> None:
            if process.paused and process.alive:
                self._world.resume(process)

        self._world.loop.call_later(seconds, resume)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.loop.call_later(seconds, self._happen, action)

    def _note(self, fault: str, process: Process, what: str = "") -> None:
        self._world.trace.note(f"fault.{fault}", process.name, what)
