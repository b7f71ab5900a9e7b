"""Finding jobs: filters, pages, and groups of failures."""

from __future__ import annotations

import base64
import binascii

import msgspec

from .errors import InvalidInput
from .failure import LEAST_STATUS, MOST_STATUS, FailureClass
from .fingerprint import fingerprint
from .group_life import GroupLife, GroupState
from .job import MAX_TIME_US, MICROSECONDS, Job, State, check_id, check_scope, check_size

MAX_PAGE = 1_000
MAX_NAMES = 10_000
HOUR_US = 3_600 * MICROSECONDS
TREND_HOURS = 24
TEXT_LIMIT = 200

Place = tuple[int, str, str]
"""The sort key of a job: its creation time, tenant and id."""


class Filter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Which jobs: all of these conditions, each with any of its values. No condition: all jobs.

    A ``scope`` is met by itself and everything inside it. Times are from (included) to (not).
    ``text`` is looked for in the last error, whatever its case. An empty ``replay_run`` is met by
    jobs that no operation has replayed.
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


_NAMES = ("ids", "queues", "tasks", "keys", "error_reasons")
_NUMBERS = (
    "attempts_from",
    "attempts_to",
    "created_from_us",
    "created_to_us",
    "finished_from_us",
    "finished_to_us",
)

EVERYTHING = Filter()


class Page(msgspec.Struct, frozen=True):
    """Some jobs that a filter finds, in the order of their creation.

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


def place_of(job: Job) -> Place:
    """Return the sort key of the job."""
    return job.created_at_us, job.tenant, job.id


def replay_run(job: Job) -> str:
    """Return the last replay run of the job, or an empty string."""
    return "" if job.replays is None else job.replays.run


def folded(text: str) -> str:
    """Return the text with ASCII letters in lower case, for comparison."""
    return text.translate(_SMALL)


_SMALL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def write_cursor(place: Place) -> str:
    """Return the cursor of the page after this place."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode().rstrip("=")


def read_cursor(cursor: str) -> Place | None:
    """Return the place of a cursor; None for the first page."""
    if cursor == "":
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return _PLACES.decode(raw)
    except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidInput("cursor", f"{cursor!r} is not from a page of this engine") from None


_PLACES: msgspec.msgpack.Decoder[Place] = msgspec.msgpack.Decoder(Place)


def check_page(limit: int) -> None:
    """Raise ``InvalidInput`` unless a page can have this size."""
    check_size("limit", limit, 1, MAX_PAGE)


def _within(value: int, least: int | None, below: int | None) -> bool:
    return (least is None or value >= least) and (below is None or value < below)


def _check_statuses(statuses: tuple[int, ...]) -> None:
    for status in statuses:
        if type(status) is not int or not (status == 0 or LEAST_STATUS <= status <= MOST_STATUS):
            raise InvalidInput("statuses", f"{status!r} is not an HTTP status, or 0 for none")


def _check_text(field: str, text: str | None, least: int) -> None:
    if text is not None and (type(text) is not str or not least <= len(text) <= TEXT_LIMIT):
        raise InvalidInput(field, f"give a text of at most {TEXT_LIMIT} characters")
