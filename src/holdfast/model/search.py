"""Finding jobs: filters, orders, pages, and groups of failures."""

from __future__ import annotations

import enum
from operator import attrgetter

import msgspec

from .errors import InvalidInput
from .failure import LEAST_STATUS, MOST_STATUS, FailureClass
from .fingerprint import fingerprint
from .group_life import GroupLife, GroupState
from .job import (
    MAX_TIME_US,
    MICROSECONDS,
    UNFINISHED,
    Job,
    State,
    check_id,
    check_scope,
    check_size,
)
from .letter_case import folded
from .payload_condition import PayloadCondition, payload_matches

MAX_PAGE = 1_000
MAX_NAMES = 10_000
MAX_CONDITIONS = 100
"""How many conditions on the payload, and how many exceptions, a filter may have."""
MAX_COUNT = 1_000_000
"""The most that one call counts."""
HOUR_US = 3_600 * MICROSECONDS
TREND_HOURS = 24
TEXT_LIMIT = 200

Place = tuple[int, str, str]
"""The sort key of a job: the number that its order goes by, its tenant and its id."""


class Order(enum.StrEnum):
    """The order of a list. Jobs with the same number are sorted by tenant and id."""

    CREATED = "created"
    """The oldest first. The only order in which no job changes its place."""
    NEWEST = "-created"
    FINISHED = "finished"
    """Of the jobs that have finished, those that did first come first."""
    LAST_FINISHED = "-finished"
    RUN_AT = "run_at"
    """Of the jobs that have not finished, those that are due first come first."""
    ATTEMPTS = "-attempts"
    """The most attempts first."""

    @property
    def descending(self) -> bool:
        """Whether the highest number comes first."""
        return self in _DESCENDING

    @property
    def opposite(self) -> Order | None:
        """The same order from its other end, if there is one."""
        return _OPPOSITES.get(self)

    @property
    def field(self) -> str:
        """The field of a job that it goes by."""
        return _ORDER_FIELDS[self.value.removeprefix("-")]

    def of_listed(self, wanted: Filter) -> Filter:
        """Return the filter for the jobs that this order lists."""
        listed = _ORDER_STATES.get(self.field)
        if listed is None:
            return wanted
        states = tuple(state for state in wanted.states or State if state in listed)
        if not states:  # then nothing matches
            return msgspec.structs.replace(wanted, states=tuple(listed), created_to_us=0)
        return msgspec.structs.replace(wanted, states=states)


_ORDER_FIELDS = {
    "created": "created_at_us",
    "finished": "finished_at_us",
    "run_at": "run_at_us",
    "attempts": "attempt",
}
_DESCENDING = frozenset(order for order in Order if order.value.startswith("-"))
_OPPOSITES = {
    Order.CREATED: Order.NEWEST,
    Order.NEWEST: Order.CREATED,
    Order.FINISHED: Order.LAST_FINISHED,
    Order.LAST_FINISHED: Order.FINISHED,
}
_SORT_KEYS = {order: attrgetter(order.field, "tenant", "id") for order in Order}
_ORDER_STATES = {
    "finished_at_us": frozenset(State) - UNFINISHED,
    "run_at_us": UNFINISHED,
}


class Filter(
    msgspec.Struct, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True
):
    """Which jobs: all of these conditions, each with any of its values. No condition: all jobs.

    A ``scope`` is met by itself and everything inside it. Times are from (included) to (not).
    ``text`` is looked for in the last error, whatever its case. An empty ``replay_run`` is met by
    jobs that no operation has replayed. A worker is the last one that
    claimed the job; what stands before a slash in its name may be left out. A job that meets any
    filter in ``without`` does not match; each of those has one condition.

    A filter with conditions that this version does not know cannot be decoded: without them it
    would find more.
    """

    ids: tuple[str, ...] = ()
    tenant: str | None = None
    scope: str | None = None
    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    error_reasons: tuple[str, ...] = ()
    classes: tuple[FailureClass, ...] = ()
    fingerprint: str | None = None
    text: str | None = None
    attempts_from: int | None = None
    attempts_to: int | None = None
    created_from_us: int | None = None
    created_to_us: int | None = None
    finished_from_us: int | None = None
    finished_to_us: int | None = None
    replay_run: str | None = None
    statuses: tuple[int, ...] = ()
    """HTTP statuses of the failure; 0: without one."""
    workers: tuple[str, ...] = ()
    payload: tuple[PayloadCondition, ...] = ()
    without: tuple[Filter, ...] = ()

    @property
    def about_payloads(self) -> bool:
        """Whether what it finds tells something of payloads."""
        return bool(self.payload) or any(one.about_payloads for one in self.without)

    def check(self) -> None:
        """Raise ``InvalidInput`` naming the invalid condition."""
        for field in (*_NAMES, "states", "classes", "statuses"):
            if type(getattr(self, field)) is not tuple or len(getattr(self, field)) > MAX_NAMES:
                raise InvalidInput(field, f"give a tuple of at most {MAX_NAMES:,}")
        for field in _NAMES:
            for name in getattr(self, field):
                check_id(name, field)
        if not all(type(state) is State for state in self.states):
            raise InvalidInput("states", f"{self.states!r} are not all states")
        if not all(type(one) is FailureClass for one in self.classes):
            raise InvalidInput("classes", f"{self.classes!r} are not all classes")
        _check_statuses(self.statuses)
        if self.tenant is not None:
            check_id(self.tenant, "tenant")
        if self.scope is not None:
            check_scope(self.scope)
        # An empty message has an empty fingerprint.
        for field, least in (("fingerprint", 0), ("text", 1), ("replay_run", 0)):
            _check_text(field, getattr(self, field), least)
        for field in _NUMBERS:
            if getattr(self, field) is not None:
                check_size(field, getattr(self, field), 0, MAX_TIME_US)
        self._check_payload()
        self._check_without()

    def matches(self, job: Job) -> bool:
        """Whether the job meets every condition."""
        return (
            (not self.ids or job.id in self.ids)
            and (self.tenant is None or job.tenant == self.tenant)
            and (self.scope is None or f"{job.scope}/".startswith(f"{self.scope}/"))
            and (not self.states or job.state in self.states)
            and (not self.queues or job.queue in self.queues)
            and (not self.tasks or job.task in self.tasks)
            and (not self.keys or job.ties.key in self.keys)
            and _within(job.attempt, self.attempts_from, self.attempts_to)
            and _within(job.created_at_us, self.created_from_us, self.created_to_us)
            and self._finish_matches(job)
            and (self.replay_run is None or replay_run(job) == self.replay_run)
            and (not self.asks_for_failures or self._failure_matches(job))
            and (
                not self.workers or f"/{job.worker}".endswith(tuple(f"/{w}" for w in self.workers))
            )
            and (not self.payload or payload_matches(self.payload, job.payload))
            and not (self.without and any(one.matches(job) for one in self.without))
        )

    @property
    def conditions(self) -> frozenset[str]:
        """The fields that have a condition; the two ends of a range count as one."""
        return frozenset(
            _RANGES.get(field, field)
            for field in self.__struct_fields__
            if getattr(self, field) != getattr(EVERYTHING, field)
        )

    @property
    def states_are_unfinished(self) -> bool:
        """Whether only unfinished jobs can match."""
        return bool(self.states) and not any(state.finished for state in self.states)

    @property
    def asks_for_failures(self) -> bool:
        """Whether only failed jobs can match."""
        return bool(
            self.error_reasons
            or self.classes
            or self.statuses
            or self.fingerprint is not None
            or self.text
        )

    def _check_payload(self) -> None:
        given = self.payload
        if type(given) is not tuple or len(given) > MAX_CONDITIONS:
            raise InvalidInput("payload", f"give a tuple of at most {MAX_CONDITIONS} conditions")
        for one in given:
            if not isinstance(one, PayloadCondition):
                raise InvalidInput("payload", f"{one!r} is not a condition on the payload")
            one.check()
        if len({one.path for one in given}) < len(given):
            raise InvalidInput("payload", "each path may have one condition")

    def _check_without(self) -> None:
        given = self.without
        if type(given) is not tuple or len(given) > MAX_CONDITIONS:
            raise InvalidInput("without", f"give a tuple of at most {MAX_CONDITIONS} filters")
        for one in given:
            if not isinstance(one, Filter):
                raise InvalidInput("without", f"{one!r} is not a filter")
            if one.without or len(one.conditions) != 1 or len(one.payload) > 1:
                raise InvalidInput("without", "each of its filters has one condition")
            one.check()

    def _finish_matches(self, job: Job) -> bool:
        if self.finished_from_us is None and self.finished_to_us is None:
            return True
        return job.state.finished and _within(
            job.finished_at_us, self.finished_from_us, self.finished_to_us
        )

    def _failure_matches(self, job: Job) -> bool:
        failure = job.failure
        return (
            failure is not None
            and (not self.error_reasons or failure.error_reason in self.error_reasons)
            and (not self.classes or failure.failure_class in self.classes)
            and (not self.statuses or (failure.status or 0) in self.statuses)
            and (self.fingerprint is None or fingerprint(failure.message) == self.fingerprint)
            and (self.text is None or folded(self.text) in folded(failure.message))
        )


_NAMES = ("ids", "queues", "tasks", "keys", "error_reasons", "workers")
_NUMBERS = (
    "attempts_from",
    "attempts_to",
    "created_from_us",
    "created_to_us",
    "finished_from_us",
    "finished_to_us",
)

_RANGES = {field: field.partition("_")[0] for field in _NUMBERS}
TIMES = tuple(field for field in _NUMBERS if field.endswith("_us"))

EVERYTHING = Filter()


class Count(msgspec.Struct, frozen=True):
    """How many jobs a filter finds; ``capped`` if there are more than were counted."""

    value: int
    capped: bool = False

    @classmethod
    def of(cls, found: int, cap: int) -> Count:
        """Return the count of this many, of which more than the cap need not be known."""
        return cls(min(found, cap), found > cap)


class Page(msgspec.Struct, frozen=True):
    """Some jobs that a filter finds, in the order that was asked for.

    ``cursor`` is for the next page; empty if there is none.
    """

    jobs: list[Job]
    cursor: str = ""


class FailureGroup(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Dead letters with the same queue, task, reason, HTTP status and fingerprint.

    One that a person touched is also listed while it has no dead letters: its times are then those
    of its ``life``.
    """

    id: str
    queue: str
    task: str
    error_reason: str
    status: int | None
    failure_class: FailureClass
    """If they differ, the first of deterministic, transient and unknown."""
    fingerprint: str
    count: int
    first_at_us: int
    last_at_us: int
    tenants: int
    scopes: int
    """How many different tenants and scopes are affected."""
    trend: tuple[int, ...] = (0,) * TREND_HOURS
    """How many of them died in each of the last 24 hours; the current hour is the last."""
    held_behind: int = 0
    """How many unfinished jobs of the same keys wait behind them."""
    state: GroupState = GroupState.OPEN
    life: GroupLife | None = None
    """What people did with it; None if nobody did, or if the caller's reach is limited."""


def without_class(wanted: Filter, unwanted: FailureClass) -> Filter:
    """Return the filter without the failures of one class; it may match nothing then."""
    left = tuple(sorted(set(wanted.classes or FailureClass) - {unwanted}))
    if not left:
        return msgspec.structs.replace(wanted, created_to_us=0)
    return msgspec.structs.replace(wanted, classes=left)


def place_of(job: Job, order: Order = Order.CREATED) -> Place:
    """Return the sort key of the job."""
    place: Place = _SORT_KEYS[order](job)
    return place


def is_after(place: Place, after: Place | None, order: Order = Order.CREATED) -> bool:
    """Whether a place comes after another one; None is the beginning."""
    return after is None or (place < after if order.descending else place > after)


def replay_run(job: Job) -> str:
    """Return the last replay run of the job, or an empty string."""
    return "" if job.replays is None else job.replays.run


def check_page(limit: int) -> None:
    """Raise ``InvalidInput`` unless a page can have this size."""
    check_size("limit", limit, 1, MAX_PAGE)


def check_cap(cap: int) -> None:
    """Raise ``InvalidInput`` unless this many can be counted."""
    check_size("cap", cap, 1, MAX_COUNT)


def check_order(order: Order | str) -> Order:
    """Return the order, or raise ``InvalidInput`` with those that exist."""
    try:
        return Order(order)
    except ValueError:
        known = ", ".join(Order)
        raise InvalidInput("order", f"{repr(order)[:40]} is not one of {known}") from None


def _within(value: int, least: int | None, below: int | None) -> bool:
    return (least is None or value >= least) and (below is None or value < below)


def _check_statuses(statuses: tuple[int, ...]) -> None:
    for status in statuses:
        if type(status) is not int or not (status == 0 or LEAST_STATUS <= status <= MOST_STATUS):
            raise InvalidInput("statuses", f"{status!r} is not an HTTP status, or 0 for none")


def _check_text(field: str, text: str | None, least: int) -> None:
    if text is not None and (type(text) is not str or not least <= len(text) <= TEXT_LIMIT):
        raise InvalidInput(field, f"give a text of at most {TEXT_LIMIT} characters")
