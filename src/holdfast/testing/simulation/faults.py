"""The faults of a run, drawn from the seed: kind, time and target."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.job import MICROSECONDS
from holdfast.testing.disk import Fault

from .network import NORMAL_DELAY_SECONDS
from .process import Process
from .world import World

_SEGMENTS_LEFT = 2


class FaultInjector:
    """Injects faults during the fault phase, and ends all of them after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.random("weather")
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (5, lambda: self._kill(self._owner, 200)),
            (6, self._kill_owner_at_a_disk_call),
            (2, self._stop_owner),
            (5, lambda: self._pause(self._owner)),
            (4, lambda: self._pause(self._remote())),
            (3, lambda: self._kill(self._remote(), 50)),
            (2, self._stop_remote),
            (2, lambda: self._kill(self._client(), 50)),
            (1, lambda: self._pause(self._client())),
            (3, self._jump_clock),
            (2, self._skew),
            (3, self._slow_disk),
            (2, self._failing_disk),
            (2, self._short_write),
            (2, self._full_disk),
            (4, self._cut_connections),
            (2, self._slow_network),
            (2, self._resize),
        ]

    def schedule(self) -> None:
        """Draw the faults of this run and set a timer for each."""
        scenario = self._world.scenario
        for _ in range(scenario.faults):
            when = self._rng.uniform(0.0, scenario.fault_seconds)
            kind = self._rng.choices(
                [kind for _weight, kind in self._kinds], [weight for weight, _kind in self._kinds]
            )[0]
            self._world.loop.call_later(when, self._run_if_active, kind)

    def end_all(self) -> None:
        """End every lasting fault."""
        world = self._world
        world.faults_active = False
        world.network.cut_share = 0.0
        world.network.slowest_seconds = world.slowest_disk_seconds = NORMAL_DELAY_SECONDS
        world.disk.capacity_bytes = None
        world.disk.faults.clear()
        for process in world.processes:
            process.turns_left = None
            if process.paused and process.alive:
                world.resume(process)
        world.trace.note("faults.end", "machine")

    def _run_if_active(self, kind: Callable[[], None]) -> None:
        if self._world.faults_active:
            kind()

    # --- the owner ---------------------------------------------------------------------------

    def _kill_owner_at_a_disk_call(self) -> None:
        self._plan_disk_fault(Fault.KILL, self._rng.randint(1, 40))

    def _stop_owner(self) -> None:
        daemon = self._world.daemon
        if daemon is not None and self._owner is not None:
            self._note("stop", self._owner)
            self._owner.call_soon(daemon.ask_to_stop)

    def _resize(self) -> None:
        daemon, owner = self._world.daemon, self._owner
        if daemon is not None and daemon.worker is not None and owner is not None:
            slots = self._rng.randint(1, 5)
            self._note("resize", owner, str(slots))
            worker = daemon.worker
            owner.call_soon(lambda: worker.resize(slots))

    # --- the disk ----------------------------------------------------------------------------

    def _failing_disk(self) -> None:
        self._world.expect_open_failure()
        self._plan_disk_fault(Fault.EIO, self._rng.randint(1, 20))

    def _short_write(self) -> None:
        self._plan_disk_fault(Fault.SHORT, self._rng.randint(1, 10))

    def _slow_disk(self) -> None:
        world = self._world
        world.slowest_disk_seconds = self._rng.choice([0.05, 0.5, 3.0])
        world.trace.note("fault.slow_disk", "machine", f"{world.slowest_disk_seconds:g} s")
        self._call_later(
            self._rng.uniform(0.5, 4),
            lambda: setattr(world, "slowest_disk_seconds", NORMAL_DELAY_SECONDS),
        )

    def _full_disk(self) -> None:
        disk = self._world.disk
        used = sum(
            len(disk.content(name)) for place in ("log", "snapshots") for name in disk.names(place)
        )
        disk.capacity_bytes = used + self._rng.randint(0, _SEGMENTS_LEFT) * 8192
        self._world.trace.note("fault.full_disk", "machine")
        self._call_later(self._rng.uniform(0.5, 4), self._lift_capacity)

    def _lift_capacity(self) -> None:
        self._world.disk.capacity_bytes = None

    def _plan_disk_fault(self, fault: Fault, calls: int) -> None:
        disk = self._world.disk
        disk.faults[disk.calls + calls] = fault
        self._world.trace.note(f"fault.planned_{fault}", "machine", f"in {calls} calls")

    # --- remote workers ----------------------------------------------------------------------

    def _stop_remote(self) -> None:
        alive = [found for found in self._world.remotes.values() if found[0].alive]
        if alive:
            process, remote = self._rng.choice(alive)
            self._note("stop", process)
            remote.ask_to_stop()

    # --- time and the network ----------------------------------------------------------------

    def _jump_clock(self) -> None:
        self._world.jump_clock(self._rng.choice([-3_600.0, -2.0, 0.7, 5.0, 60.0, 3_600.0]))

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
        self._call_later(self._rng.uniform(0.5, 4), lambda: setattr(network, "cut_share", 0.0))

    def _slow_network(self) -> None:
        network = self._world.network
        network.slowest_seconds = self._rng.choice([0.05, 0.5])
        self._world.trace.note("fault.slow_network", "machine")
        self._call_later(
            self._rng.uniform(0.5, 3),
            lambda: setattr(network, "slowest_seconds", NORMAL_DELAY_SECONDS),
        )

    # --- targets and timers ------------------------------------------------------------------

    @property
    def _owner(self) -> Process | None:
        owner = self._world.owner
        return owner if owner is not None and owner.alive else None

    def _remote(self) -> Process | None:
        alive = [process for process, _remote in self._world.remotes.values() if process.alive]
        return self._rng.choice(alive) if alive else None

    def _client(self) -> Process | None:
        alive = [process for process in self._world.clients.values() if process.alive]
        return self._rng.choice(alive) if alive else None

    def _kill(self, process: Process | None, max_turns: int) -> None:
        if process is not None:
            process.turns_left = self._rng.randint(0, max_turns)

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

    def _call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.loop.call_later(seconds, self._run_if_active, action)

    def _note(self, fault: str, process: Process, what: str = "") -> None:
        self._world.trace.note(f"fault.{fault}", process.name, what)
