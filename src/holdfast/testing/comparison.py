"""Comparing two engines: the same calls must give the same answers and the same state."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from msgspec.structs import replace

from holdfast.engines.contract import AdminResult, Claim, Engine, EngineOptions, Reclaim
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.access import Caller
from holdfast.model.errors import HoldfastError, LeaseLost
from holdfast.model.event import Event, EventReceipt
from holdfast.model.event_search import EVERY_EVENT, EventFilter
from holdfast.model.explain import Explanation
from holdfast.model.history import AttemptRecord, History
from holdfast.model.job import Job
from holdfast.model.search import MAX_PAGE, Filter, Order, Page
from holdfast.model.subscription import Subscription

from .clock import VirtualClock

T = TypeVar("T")

OPTIONS = EngineOptions(remember_seconds=30.0, max_processing_seconds=60.0)
IDS = [f"job{number}" for number in range(8)]
TENANTS = ["default", "acme"]
CALLERS = [Caller(), Caller("acme"), Caller("acme", ("library:42",))]


class EngineComparison(RuleBasedStateMachine):
    """Compares an engine, which may crash, with the oracle."""

    subject: Engine

    @abstractmethod
    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        """Return a new, empty engine."""

    def crash_after_calls(self, calls: int | None) -> None:
        """Kill the engine's process after this many more disk calls; None cancels that."""

    async def reopen(self, cut_seed: int | None) -> Engine | None:
        """Open the engine again after its process died; return None if it cannot survive that.

        ``cut_seed`` is None after a kill, and a seed after a power cut.
        """
        del cut_seed
        return None

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.oracle = MemoryEngine(clock=self.clock, options=OPTIONS)
        self.calls_to_crash: int | None = None
        self.cut_seed: int | None = None

    def teardown(self) -> None:
        """Close the engine and the loop."""
        try:
            if hasattr(self, "subject"):
                self.run(self.subject.close())
        finally:
            self.loop.close()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(work)

    def side(self, engine: Engine) -> int:
        """Return the index of this engine in a pair: 0 is the oracle."""
        return 0 if engine is self.oracle else 1

    def both(self, call: Callable[[Engine], Awaitable[T]]) -> tuple[T, T] | None:
        """Call both engines and compare the answers; None if both failed or the engine crashed."""
        self.crash_after_calls(self.calls_to_crash)
        self.calls_to_crash = None
        got = self.attempt(self.subject, call)
        self.crash_after_calls(None)
        if isinstance(got, Exception) and not isinstance(got, HoldfastError):
            raise got
        if self.died(got):
            self.recover(call)
            return None
        expected = self.attempt(self.oracle, call)
        if self.died(self.attempt(self.subject, lambda engine: engine.counts())):
            self.crash(self.cut_seed)  # after the answer, so the call must be durable
        if isinstance(got, Exception) or isinstance(expected, Exception):
            assert str(got) == str(expected)
            return None
        assert plain(got) == plain(expected)
        return expected, got

    def crash(self, cut_seed: int | None) -> None:
        """Kill the process, or cut the power, and open again."""
        again = self.run(self.reopen(cut_seed))
        if again is not None:
            self.subject = again

    def recover(self, call: Callable[[Engine], Awaitable[T]]) -> None:
        """Open again; the call took effect completely or not at all."""
        again = self.run(self.reopen(self.cut_seed))
        assert again is not None
        self.subject = again
        if self.snapshot(self.subject) != self.snapshot(self.oracle):
            self.attempt(self.oracle, call)

    @staticmethod
    def died(answer: object) -> bool:
        """Whether this is the error of an engine whose disk is dead."""
        return isinstance(answer, HoldfastError) and answer.code in ("durability_lost", "storage")

    def attempt(self, engine: Engine, call: Callable[[Engine], Awaitable[T]]) -> T | Exception:
        """Make the call; return its answer or its error."""

        async def run() -> T | Exception:
            try:
                return await call(engine)
            except (HoldfastError, OSError) as error:
                return error

        return self.run(run())

    def snapshot(self, engine: Engine) -> object:
        """Return the whole visible state of an engine."""
        return self.run(_snapshot(engine))


async def _snapshot(engine: Engine) -> object:
    seen = {
        "jobs": [await engine.get(IDS, tenant=tenant) for tenant in TENANTS],
        "found": [await pages(engine, Filter(), MAX_PAGE, caller=caller) for caller in CALLERS],
        "counts": [await engine.counts(caller=caller) for caller in CALLERS],
        "groups": [await engine.groups(caller=caller) for caller in CALLERS],
        "histories": [await engine.history(IDS, tenant=tenant) for tenant in TENANTS],
        "settings": [await engine.policies(), await engine.flags(), await engine.schedules()],
        "outages": await engine.outages(ended=True),
        "audit": await engine.audited(limit=MAX_PAGE),
        "events": [await event_pages(engine, EVERY_EVENT, caller=one) for one in CALLERS],
        "subscriptions": list((await engine.subscriptions()).values()),
        "records": await engine.records("key"),
    }
    return {name: plain(part) for name, part in seen.items()}


async def pages(
    engine: Engine, wanted: Filter, limit: int, order: Order = Order.CREATED, *, caller: Caller
) -> list[Job]:
    """Return all jobs that a filter finds, page by page."""
    found: list[Job] = []
    cursor = ""
    while True:
        page = await engine.find(wanted, cursor=cursor, limit=limit, order=order, caller=caller)
        found += page.jobs
        cursor = page.cursor
        if not cursor:
            return found


async def event_pages(
    engine: Engine,
    wanted: EventFilter,
    limit: int = MAX_PAGE,
    *,
    newest: bool = False,
    caller: Caller,
) -> list[Event]:
    """Return all events that a filter finds, page by page; their number must be the count."""
    found: list[Event] = []
    cursor = ""
    while True:
        page = await engine.find_events(
            wanted, cursor=cursor, limit=limit, newest=newest, caller=caller
        )
        found += page.events
        cursor = page.cursor
        if not cursor:
            break
    assert await engine.count_events(wanted, caller=caller) == len(found)
    return found


_OF_JOBS = (Claim, Explanation, History, AdminResult, Page, Reclaim)
"""Answers with jobs or attempts in them."""


def plain(answer: object) -> object:
    """Return an answer without tokens, positions and versions, which engines number freely."""
    if isinstance(answer, Job):
        return replace(answer, token=0, seq=0, ties=replace(answer.ties, key_seq=0))
    if isinstance(answer, AttemptRecord):
        return replace(answer, token=0)
    if isinstance(answer, Event):
        return replace(answer, position=0, fanout_version=0)
    if isinstance(answer, EventReceipt):
        return replace(answer, position=0)
    if isinstance(answer, Subscription):
        return replace(answer, since_version=0)
    if isinstance(answer, LeaseLost):
        return LeaseLost, answer.job_id
    if isinstance(answer, list | tuple):
        return [plain(item) for item in answer]
    if isinstance(answer, _OF_JOBS):
        fields = type(answer).__struct_fields__
        return type(answer), [plain(getattr(answer, field)) for field in fields]
    return answer
