"""How jobs, attempts, notes and audit records are stored: columns, a body, its CRC.

The body, JSON, is authoritative; the columns are for searching.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Generic, TypeVar
from zlib import crc32

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.errors import CorruptHistory
from holdfast.model.fingerprint import fingerprint
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import Job, State
from holdfast.model.search import folded, replay_run

T = TypeVar("T")

DONE = frozenset({State.COMPLETED, State.CANCELLED})
DEAD = frozenset({State.DEAD, State.ARCHIVED})

Name = tuple[str, str]
"""A job's tenant and id."""

DONE_ROW_VALUES = 12
DONE_ROW_BYTES = 256
"""About what a finished job takes in the file besides its body; the statements have it too."""
DeadRow = tuple[int, str, str, str, int, int, str, str | None, str, str, int, int, int, str]
BodyRow = tuple[int, int, str]
JobBodyRow = tuple[int, str, str, int, int, str]
Kind = tuple[str, str, str, str, int]
"""Queue, task, error_reason, class and HTTP status of a dead job; empty if it has no failure."""

_ENCODER = msgspec.json.Encoder()
_encode = _ENCODER.encode
_COLUMNS = attrgetter(
    "tenant", "id", "scope", "queue", "task", "created_at_us", "finished_at_us", "attempt"
)
_WORDS = {state: state.value for state in State}
"""States as plain str: the sqlite3 module is slow with subclasses."""
_ENVELOPE = msgspec.json.Decoder(list[tuple[int, int, str]])
_MARK = "\x01"


def body_of(value: Job | AttemptRecord | Note | AuditRecord) -> tuple[int, str]:
    """Return the CRC and the text of a body."""
    body = _encode(value)
    return crc32(body), body.decode()


def done_values(done: Sequence[tuple[int, Job]]) -> tuple[list[str | int], int]:
    """Return the rows of completed and cancelled jobs as one flat list, and their size in bytes."""
    lines = _ENCODER.encode_lines([job for _seq, job in done]).removesuffix(b"\n")
    values: list[str | int] = []
    for (seq, job), body, text in zip(
        done, lines.split(b"\n"), lines.decode().split("\n"), strict=True
    ):
        values += (seq, *_COLUMNS(job), _WORDS[job.state], crc32(body), text)
    return values, len(lines) + len(done) * DONE_ROW_BYTES - (len(done) - 1)


def done_columns(seq: int, job: Job) -> list[object]:
    """Return the columns of a completed or cancelled job, without its body."""
    return [seq, *_COLUMNS(job), job.state]


def dead_row(seq: int, job: Job, kind: int, shape: int) -> DeadRow:
    """Return the row of a dead or archived job, without its body."""
    return (
        seq,
        job.tenant,
        job.id,
        job.scope,
        kind,
        shape,
        job.task,
        job.ties.key,
        storable(replay_run(job)),
        job.state,
        job.attempt,
        job.created_at_us,
        job.finished_at_us,
        "" if job.failure is None else searchable(job.failure.message),
    )


def kind_of(job: Job) -> Kind:
    """Return the kind of a dead job, as it is stored."""
    if job.failure is None:
        return job.queue, job.task, "", "", 0
    failure = job.failure
    reason = storable(failure.error_reason)
    return job.queue, job.task, reason, failure.failure_class, failure.status or 0


def shape_of(job: Job) -> str:
    """Return the shape of a dead job's message, as it is stored."""
    return "" if job.failure is None else storable(fingerprint(job.failure.message))


def storable(text: str) -> str:
    """Return a text without NUL, at which SQLite's JSON would end it; ``original`` undoes it."""
    if "\0" not in text and not text.startswith(_MARK):
        return text
    return _MARK + _encode(text).decode()


def original(text: str) -> str:
    """Return what ``storable`` was given."""
    return msgspec.json.decode(text[1:], type=str) if text.startswith(_MARK) else text


def searchable(text: str) -> str:
    """Return a message in the form that is searched: folded, without NUL."""
    # The same as folded, and much faster, for ASCII.
    small = text.lower() if text.isascii() else folded(text)
    return small.replace("\0", _MARK)


def searches_exactly(text: str) -> bool:
    """Whether a match by ``searchable`` is a real match."""
    return "\0" not in text and _MARK not in text


class BodyReader(Generic[T]):
    """Reads the bodies of one table, and checks their CRC."""

    def __init__(self, table: str, kept: type[T]) -> None:
        self._table = table
        self._decoder = msgspec.json.Decoder(kept)

    def read(self, found: bytes, file: str) -> list[tuple[int, T]]:
        """Return what a statement found, with its numbers, in order.

        Raise ``CorruptHistory``.
        """
        try:
            rows = _ENVELOPE.decode(found)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptHistory(file, self._table, "", f"it is not valid text ({error})") from None
        return [
            (number, self.one(number, crc, body.encode(), file))
            for number, crc, body in sorted(rows)
        ]

    def one(self, number: int, crc: int, body: bytes, file: str) -> T:
        """Return the body of one row, decoded."""
        if crc32(body) != crc:
            raise CorruptHistory(file, self._table, str(number), "its checksum is wrong")
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptHistory(file, self._table, str(number), str(error)) from None


DONE_BODIES = BodyReader("done", Job)
DEAD_BODIES = BodyReader("dead_bodies", Job)
ATTEMPTS = BodyReader("attempts", AttemptRecord)
NOTES = BodyReader("notes", Note)
AUDIT = BodyReader("audit", AuditRecord)


def only(values: Iterable[tuple[int, T]]) -> list[T]:
    """Return what was read, without the numbers."""
    return [value for _number, value in values]
