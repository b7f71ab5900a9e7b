"""NDJSON: a line is one thing to store. Committed as it comes, and answered line by line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from holdfast.model import errors

from .call import ApiCall, invalid
from .lines import MAX_LINE_BYTES, MAX_LINES, Line, LineReader
from .problems import FieldError, RequestRefused, refusal_of
from .streaming import Parts, StreamedAnswer, buffered

COMMIT_LINES = 1_000
COMMIT_SECONDS = 1.0
INGEST_PARAMETERS = ("atomic", "stop")
NDJSON = "application/x-ndjson"
_TAKEN = frozenset({NDJSON, "application/ndjson", "application/jsonl"})
_MAX_UNREAD_BYTES = 16 << 20
"""Of the answer. A peer that reads less than that is not read from any further."""
_MOST_ERRORS = 100
T = TypeVar("T")


class StoredLine(msgspec.Struct, frozen=True):
    """What a line became: ``existing`` if it was there before."""

    id: str
    existing: bool


class IngestTarget(msgspec.Struct, Generic[T], frozen=True):
    """Where lines go."""

    parse: Callable[[bytes], T]
    """Raises ``RequestRefused``, or an error of Holdfast, for a wrong line."""
    check: Callable[[T], None]
    """Raises the same for what cannot be stored; called only if ``store`` refused a batch."""
    store: Callable[[Sequence[T]], Awaitable[list[StoredLine]]]
    """All of them in one commit, or none."""


class IngestedLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a line that was stored."""

    line: int
    id: str
    existing: bool = False


class RefusedLine(msgspec.Struct, frozen=True):
    """The answer to a line that was not stored; see ``docs/problems.md``."""

    line: int
    type: str
    title: str
    status: int
    detail: str
    retryable: bool
    errors: list[FieldError]


class IngestSummary(msgspec.Struct, kw_only=True):
    """The last line. ``stopped`` says why the rest was not read; empty: all was."""

    lines: int = 0
    created: int = 0
    existing: int = 0
    refused: int = 0
    stopped: str = ""


LineAnswer = IngestedLine | RefusedLine


async def answer_ingest(call: ApiCall, target: IngestTarget[T]) -> StreamedAnswer:
    """Store the lines of the body, and answer each."""
    if call.media not in _TAKEN:
        raise RequestRefused("unsupported-media-type", f"send content-type: {NDJSON}")
    stop = call.value("stop")
    if stop not in ("", "first"):
        raise invalid("stop", "it can be first")
    ingest = _Ingest(call, target, stop_at_first=stop == "first")
    atomic = call.value("atomic", "0")
    if atomic not in ("0", "1"):
        raise invalid("atomic", "it is 0 or 1")
    parts = ingest.at_once() if atomic == "1" else buffered(ingest.parts(), _MAX_UNREAD_BYTES)
    return StreamedAnswer(content_type=NDJSON, parts=parts)


class _Ingest(Generic[T]):
    def __init__(self, call: ApiCall, target: IngestTarget[T], *, stop_at_first: bool) -> None:
        self._call = call
        self._target = target
        self._stop_at_first = stop_at_first
        self._reader = LineReader(call.stream)
        self._summary = IngestSummary()

    async def parts(self) -> Parts:
        """Commit batch after batch; yield what each line of it became, and at the end a summary."""
        summary = self._summary
        while not summary.stopped:
            lines = await self._reader.batch(COMMIT_LINES, COMMIT_SECONDS)
            if not lines:
                summary.stopped = self._too_many()
                break
            answers = await self._committed(lines)
            for one in answers:
                self._count(one)
            yield _encoded(answers)
            summary.stopped = self._stopped()
        summary.lines = summary.created + summary.existing + summary.refused
        yield _encoded([{"summary": summary}])

    def _stopped(self) -> str:
        """Return why no more is read, if so."""
        if self._summary.stopped:
            return self._summary.stopped
        if self._call.draining():
            return "draining"
        return self._too_many()

    def _too_many(self) -> str:
        return "too-many-lines" if self._reader.count >= MAX_LINES else ""

    async def at_once(self) -> Parts:
        """Commit all lines or none; a wrong one is the answer to the whole call."""
        lines: list[Line] = []
        while more := await self._reader.batch(COMMIT_LINES + 1, COMMIT_SECONDS):
            lines += more
            if len(lines) > COMMIT_LINES:
                text = f"at most {COMMIT_LINES:,} lines in one commit: leave atomic=1 out"
                raise RequestRefused("too-large", text)
        parsed, refused = self._parsed(lines)
        if refused:
            first = refused[0]
            found = [
                FieldError(f"/{one.line}{error.pointer}", error.code, error.detail)
                for one in refused
                for error in one.errors or [FieldError("", "invalid", one.detail)]
            ]
            text = f"line {first.line}: {first.detail}; nothing was stored"
            raise RequestRefused("invalid-input", text, fields=found[:_MOST_ERRORS])
        stored = await self._target.store([item for _line, item in parsed]) if parsed else []
        answers = [
            IngestedLine(number, one.id, one.existing)
            for (number, _item), one in zip(parsed, stored, strict=True)
        ]
        for one in answers:
            self._count(one)
        self._summary.lines = len(answers)
        yield _encoded([*answers, {"summary": self._summary}])

    async def _committed(self, lines: Sequence[Line]) -> list[LineAnswer]:
        """Return what each of these lines became, in their order."""
        parsed, refused = self._parsed(lines)
        answers: list[LineAnswer] = list(refused)
        try:
            answers += await self._stored(parsed, checked=False)
        except _StoreFailed as failed:
            self._summary.stopped = failed.refusal.type.name
            answers += failed.answers
        answers.sort(key=lambda one: one.line)
        if self._stop_at_first and _has_refused(answers) and not self._summary.stopped:
            self._summary.stopped = "first"
        return answers

    def _parsed(self, lines: Sequence[Line]) -> tuple[list[tuple[int, T]], list[RefusedLine]]:
        parsed: list[tuple[int, T]] = []
        refused: list[RefusedLine] = []
        for line in lines:
            try:
                if line.text is None:
                    raise _too_long()
                parsed.append((line.number, self._target.parse(line.text)))
            except (RequestRefused, errors.HoldfastError) as error:
                refused.append(_refused(line.number, error))
                if self._stop_at_first:
                    break
        return parsed, refused

    async def _stored(self, parsed: Sequence[tuple[int, T]], *, checked: bool) -> list[LineAnswer]:
        """Commit these; if the store refuses them, commit each half, down to the wrong line."""
        if not parsed:
            return []
        try:
            stored = await self._target.store([item for _number, item in parsed])
        except (errors.Unavailable, errors.StorageError, errors.EngineClosed) as error:
            refused: list[LineAnswer] = [_refused(number, error) for number, _item in parsed]
            raise _StoreFailed(refusal_of(error), refused) from None
        except (RequestRefused, errors.HoldfastError) as error:
            if len(parsed) == 1:
                return [_refused(parsed[0][0], error)]
        else:
            return [
                IngestedLine(number, one.id, one.existing)
                for (number, _item), one in zip(parsed, stored, strict=True)
            ]
        found: list[LineAnswer] = []
        if checked:
            middle = len(parsed) // 2
            found, rest = await self._stored(parsed[:middle], checked=True), parsed[middle:]
        else:
            rest, wrong = self._checked(parsed)
            found += wrong
        if checked and self._stop_at_first and _has_refused(found):
            return found
        try:
            return found + await self._stored(rest, checked=True)
        except _StoreFailed as failed:
            raise _StoreFailed(failed.refusal, [*found, *failed.answers]) from None

    def _checked(
        self, parsed: Sequence[tuple[int, T]]
    ) -> tuple[list[tuple[int, T]], list[RefusedLine]]:
        good: list[tuple[int, T]] = []
        wrong: list[RefusedLine] = []
        for number, item in parsed:
            try:
                self._target.check(item)
            except (RequestRefused, errors.HoldfastError) as error:
                wrong.append(_refused(number, error))
                if self._stop_at_first:
                    break
            else:
                good.append((number, item))
        return good, wrong

    def _count(self, answer: LineAnswer) -> None:
        if isinstance(answer, RefusedLine):
            self._summary.refused += 1
        elif answer.existing:
            self._summary.existing += 1
        else:
            self._summary.created += 1


class _StoreFailed(Exception):
    """The store does not take any more."""

    def __init__(self, refusal: RequestRefused, answers: list[LineAnswer]) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal
        self.answers = answers


def _refused(number: int, error: RequestRefused | errors.HoldfastError) -> RefusedLine:
    told = error if isinstance(error, RequestRefused) else refusal_of(error)
    kind = told.type
    return RefusedLine(
        number, kind.uri, kind.title, kind.status, told.detail, kind.retryable, told.fields
    )


def _has_refused(answers: Sequence[LineAnswer]) -> bool:
    return any(isinstance(one, RefusedLine) for one in answers)


def _too_long() -> RequestRefused:
    return RequestRefused("too-large", f"a line has at most {MAX_LINE_BYTES:,} bytes")


def _encoded(answers: Sequence[object]) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in answers)
