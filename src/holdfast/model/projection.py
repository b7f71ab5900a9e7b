"""What is stored about a projection: its generations, and its rebuilds.

A generation is a table and a subscription of its own. Readers see one of them, the live one. A
rebuild fills the next one and makes it the live one, or fills the live one anew in its place.
"""

from __future__ import annotations

import enum

import msgspec
from msgspec.structs import replace

from .errors import InvalidInput
from .job import MICROSECONDS, Whole

KEEP_PREVIOUS_US = 24 * 3_600 * MICROSECONDS
"""How long the generation before the live one is kept up to date, to return to it."""
MAX_REBUILDS = 20
"""How many rebuilds that have ended are remembered."""
FIRST_GENERATION = 1
TASK_PREFIX = "projection."
_MARK = ".g"


class RebuildMode(enum.StrEnum):
    """How a projection is rebuilt."""

    GENERATION = "generation"
    """Beside the live one, which readers see until the new one is complete."""
    TRUNCATE = "truncate"
    """In place: readers see the live one grow again."""
    EMIT = "emit"
    """In place, through the workers: every event becomes a job again."""


class RebuildPhase(enum.StrEnum):
    """How far a rebuild is."""

    STARTING = "starting"
    """Its table and its subscription are made, or the queue of the live one is paused."""
    EMPTYING = "emptying"
    """In place only: the table is emptied when no job of it runs any more."""
    FILLING = "filling"
    DRAINING = "draining"
    """Events that came meanwhile are applied."""
    CHECKING = "checking"
    CANCELLING = "cancelling"
    """A person has cancelled it; what was filled beside the live one is dropped."""
    DONE = "done"
    FAILED = "failed"
    """It stopped at an error, and can be resumed."""
    CANCELLED = "cancelled"


ENDED = frozenset({RebuildPhase.DONE, RebuildPhase.CANCELLED})


class Rebuild(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rebuild: what was asked for, and how far it has come."""

    id: str
    mode: RebuildMode
    generation: int
    by: str
    why: str = ""
    started_at_us: Whole
    phase: RebuildPhase = RebuildPhase.STARTING
    ended_at_us: Whole = 0
    total: Whole = 0
    filled: Whole = 0
    failed: Whole = 0
    max_errors: Whole = 0
    was_paused: bool = False
    """Whether a person had paused its queue before."""
    cursor: str = ""
    """How far jobs were emitted; a fill stores its place with its rows."""
    error: str = ""
    rows: Whole = 0
    hash: str = ""
    live_rows: Whole = 0
    live_hash: str = ""

    @property
    def running(self) -> bool:
        """Whether somebody has to go on with it."""
        return self.phase not in ENDED and self.phase is not RebuildPhase.FAILED


class ProjectionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored about one projection. New fields get defaults."""

    name: str
    live: int = FIRST_GENERATION
    """The generation that readers see."""
    newest: int = FIRST_GENERATION
    """The highest number that was ever used."""
    previous: int = 0
    """The generation before the live one, while it is kept; 0: none is."""
    previous_until_us: Whole = 0
    incomplete: bool = False
    """Whether the live generation is being filled in place."""
    versions: dict[int, int] = {}
    """For each generation that exists the version of the declaration that it is made by."""
    rebuild: Rebuild | None = None
    """The one that runs, or that has failed and can be resumed."""
    past: tuple[Rebuild, ...] = ()
    """Rebuilds that have ended, the newest first."""

    @property
    def generations(self) -> list[int]:
        """The generations that get events."""
        building = self.rebuild.generation if self.rebuild is not None else 0
        return sorted({self.live, self.previous, building} - {0})


def queue_of(projection: str, generation: int) -> str:
    """Return the queue of a generation: the first one has the name of the projection."""
    return projection if generation == FIRST_GENERATION else f"{projection}{_MARK}{generation}"


def generation_of(queue: str) -> tuple[str, int]:
    """Return the projection and the generation that a queue belongs to."""
    name, mark, number = queue.rpartition(_MARK)
    if mark and name and number.isdecimal() and int(number) > FIRST_GENERATION:
        return name, int(number)
    return queue, FIRST_GENERATION


def task_of(projection: str) -> str:
    """Return the task that applies the events of a projection."""
    return f"{TASK_PREFIX}{projection}"


def check_projection_name(name: str) -> str:
    """Return the name, or raise ``InvalidInput``: it names a queue, and on PostgreSQL a view."""
    if not name.isascii() or not name.replace("_", "").isalnum() or not name[0].isalpha():
        raise InvalidInput("projection", f"{name!r} is not a name of letters, digits and _")
    if len(name) > 40 or name != name.lower():
        raise InvalidInput("projection", f"{name!r} is not up to 40 characters in lower case")
    return name


def ended(state: ProjectionState, rebuild: Rebuild) -> ProjectionState:
    """Return the state after a rebuild has ended."""
    return replace(state, rebuild=None, past=(rebuild, *state.past)[:MAX_REBUILDS])


def without_tables(state: ProjectionState) -> ProjectionState:
    """Return the state as a dump has it, which has no read models.

    Its live generation is incomplete until it is rebuilt; the others are dropped.
    """
    rebuild = state.rebuild
    if rebuild is not None:
        rebuild = replace(rebuild, phase=RebuildPhase.CANCELLING)
    return replace(
        state, incomplete=True, rebuild=rebuild, previous_until_us=min(state.previous_until_us, 1)
    )
