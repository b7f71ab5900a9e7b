"""A hypothesis state machine: any engine, step by step, beside the memory engine.

Subclass ``EngineMachine`` and say how to open your engine. If it survives crashes, override
``doomed`` and ``reopen`` too: then any step may be its process's last, and what is found
afterwards must be the oracle's state before that step or after it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from holdfast.engines.base import Claim, Engine, EngineOptions, OnDuplicate
from holdfast.engines.memory import MemoryEngine
from holdfast.model.access import Caller
from holdfast.model.errors import HoldfastError, LeaseLost
from holdfast.model.failure import Failure
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import Outcome, OutcomeKind

from .clock import VirtualClock

T = TypeVar("T")

OPTIONS = EngineOptions(remember_seconds=30.0, max_processing_seconds=60.0)
FAILURE = Failure.of("timeout", "took too long")
IDS = [f"job{number}" for number in range(6)]
TENANTS = ["default", "acme"]
CALLERS = [Caller(), Caller("acme"), Caller("acme", ("library:42",))]
callers = st.sampled_from([*[Caller()] * 6, *CALLERS])

new_jobs = st.builds(
    NewJob,
    task=st.sampled_from(["mail", "report"]),
    payload=st.sampled_from([b"{}", b'{"n":1}']),
    id=st.sampled_from(IDS),
    tenant=st.sampled_from(["default", *TENANTS]),
    scope=st.sampled_from(["", "library:42", "library:42/book:7", "library:43"]),
    queue=st.sampled_from(["default", "slow"]),
    priority=st.sampled_from([0, 0, 5]),
    max_attempts=st.integers(1, 4),
    delay_seconds=st.sampled_from([None, None, 5.0]),
    expires_seconds=st.sampled_from([None, None, 20.0]),
    unique=st.sampled_from([None, None, "u1", "u2"]),
    max_processing_seconds=st.sampled_from([None, 15.0]),
)


class EngineMachine(RuleBasedStateMachine):
    """Does the same to both engines and compares every answer and every job."""

    @abstractmethod
    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        """Return a new, empty engine."""

    def doomed(self, calls: int | None) -> None:
        """Let the engine's process die after so many more calls to the disk; None takes it back."""

    async def reopen(self, cut: int | None) -> Engine | None:
        """Open the engine again after its process died, or None if it cannot survive that.

        ``cut`` is None after a kill, and a seed after a power cut.
        """
        del cut
        return None

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.oracle: Engine = MemoryEngine(clock=self.clock, options=OPTIONS)
        self.held: list[tuple[Job, Job]] = []
        self.crash_after: int | None = None
        self.cut: int | None = None

    def teardown(self) -> None:
        """Close everything."""
        self.run(self.subject.close())
        self.loop.close()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        """Open the engine."""
        self.subject = self.run(self.open_engine(self.clock, OPTIONS))

    # --- steps -------------------------------------------------------------------------------

    @rule(jobs=st.lists(new_jobs, max_size=4), skip=st.booleans(), caller=callers)
    def enqueue(self, jobs: list[NewJob], skip: bool, caller: Caller) -> None:  # noqa: FBT001
        """Enqueue a batch."""
        on_duplicate: OnDuplicate = "skip" if skip else "refuse"
        self.both(lambda engine: engine.enqueue(jobs, caller=caller, on_duplicate=on_duplicate))

    @rule(
        queues=st.sampled_from([["default"], ["default", "slow"]]),
        tasks=st.sampled_from([None, ["mail"]]),
        limit=st.integers(1, 4),
        caller=callers,
    )
    def claim(self, queues: list[str], tasks: list[str] | None, limit: int, caller: Caller) -> None:
        """Claim some jobs."""

        def call(engine: Engine) -> Awaitable[Claim]:
            return engine.claim(
                queues=queues, tasks=tasks, limit=limit, worker="w", lease_seconds=10, caller=caller
            )

        answers = self.both(call)
        if answers is not None:
            self.held.extend(zip(answers[0].jobs, answers[1].jobs, strict=True))
            del self.held[:-8]

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Settle some jobs, current and stale ones."""
        if self.held:
            pairs = data.draw(st.lists(st.sampled_from(self.held), max_size=3))
            kinds = data.draw(
                st.lists(st.sampled_from(OutcomeKind), min_size=len(pairs), max_size=len(pairs))
            )
            outcomes = [
                tuple(Outcome(kind, job.id, job.token, job.tenant, 3.0, FAILURE) for job in pair)
                for kind, pair in zip(kinds, pairs, strict=True)
            ]
            self.both(lambda engine: engine.settle([pair[self.side(engine)] for pair in outcomes]))

    @rule(data=st.data(), seconds=st.sampled_from([5.0, 40.0]))
    def extend(self, data: st.DataObject, seconds: float) -> None:
        """Extend some leases, current and stale ones."""
        if self.held:
            pairs = data.draw(st.lists(st.sampled_from(self.held), max_size=3))
            self.both(
                lambda engine: engine.extend(
                    [pair[self.side(engine)] for pair in pairs], lease_seconds=seconds
                )
            )

    @rule(limit=st.integers(1, 3), data=st.data(), caller=callers)
    def reclaim(self, limit: int, data: st.DataObject, caller: Caller) -> None:
        """Reclaim what ran out, and perhaps force one."""
        forced = data.draw(st.lists(st.sampled_from(self.held), max_size=1)) if self.held else []
        self.both(
            lambda engine: engine.reclaim(
                limit=limit, forced=[pair[self.side(engine)] for pair in forced], caller=caller
            )
        )

    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        """End a lease by force and give the work to somebody else: its holder is a zombie now."""
        if self.held:
            pair = data.draw(st.sampled_from(self.held))
            self.both(lambda engine: engine.reclaim(forced=[pair[self.side(engine)]]))
            self.claim(["default", "slow"], None, 4, Caller())

    @rule(seconds=st.sampled_from([1.0, 6.0, 16.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.advance(seconds)

    @rule(calls=st.integers(1, 4), cut=st.none() | st.integers(0, 2**16))
    def crash_soon(self, calls: int, cut: int | None) -> None:
        """Let one of the next steps be the process's last."""
        self.crash_after, self.cut = calls, cut

    @rule(cut=st.none() | st.integers(0, 2**16))
    def crash_now(self, cut: int | None) -> None:
        """Kill the process, or cut the power, between two steps."""
        again = self.run(self.reopen(cut))
        if again is not None:
            self.subject = again

    @invariant()
    def same(self) -> None:
        """Both keep the same jobs and count the same."""
        if hasattr(self, "subject"):
            assert self.picture(self.subject) == self.picture(self.oracle)
            assert self.run(self.subject.validate()) == []

    # --- comparing ---------------------------------------------------------------------------

    def side(self, engine: Engine) -> int:
        """Return which of a pair is this engine's."""
        return 0 if engine is self.oracle else 1

    def both(self, call: Callable[[Engine], Awaitable[T]]) -> tuple[T, T] | None:
        """Make the call on both; the answers must agree. None if it failed, alike, or crashed."""
        self.doomed(self.crash_after)
        self.crash_after = None
        got = self.attempt(self.subject, call)
        self.doomed(None)
        if isinstance(got, Exception) and not isinstance(got, HoldfastError):
            raise got
        if self.died(got):
            self.after_the_crash(call)
            return None
        expected = self.attempt(self.oracle, call)
        if self.died(self.attempt(self.subject, lambda engine: engine.counts())):
            self.crash_now(self.cut)  # after the answer, which therefore stands
        if isinstance(got, Exception) or isinstance(expected, Exception):
            assert str(got) == str(expected)
            return None
        assert plain(got) == plain(expected)
        return expected, got

    def after_the_crash(self, call: Callable[[Engine], Awaitable[T]]) -> None:
        """Open again; the step either happened whole or not at all."""
        again = self.run(self.reopen(self.cut))
        assert again is not None
        self.subject = again
        if self.picture(self.subject) != self.picture(self.oracle):
            self.attempt(self.oracle, call)

    @staticmethod
    def died(answer: object) -> bool:
        """Whether this is what an engine says whose process is gone."""
        return isinstance(answer, HoldfastError) and answer.code == "durability_lost"

    def attempt(self, engine: Engine, call: Callable[[Engine], Awaitable[T]]) -> T | Exception:
        """Make the call; return its answer or what it raised."""

        async def run() -> T | Exception:
            try:
                return await call(engine)
            except (HoldfastError, OSError) as error:
                return error

        return self.run(run())

    def picture(self, engine: Engine) -> object:
        """Return everything that can be seen of an engine."""

        async def look() -> object:
            jobs = [plain(await engine.get(IDS, tenant=tenant)) for tenant in TENANTS]
            return jobs, [await engine.counts(caller=caller) for caller in CALLERS]

        return self.run(look())


def plain(answer: object) -> object:
    """Return an answer without what engines number as they like: tokens and places."""
    if isinstance(answer, Job):
        return replace(answer, token=0, seq=0)
    if isinstance(answer, LeaseLost):
        return LeaseLost, answer.job_id
    if isinstance(answer, list | tuple):
        return [plain(item) for item in answer]
    fields = getattr(answer, "__struct_fields__", None)
    if fields is not None:
        return type(answer), [plain(getattr(answer, field)) for field in fields]
    return answer
