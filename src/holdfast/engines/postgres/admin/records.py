"""Records; see ``model.record``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.model.audit import Attribution
from holdfast.model.errors import ChangedMeanwhile, InvalidInput
from holdfast.model.record import MAX_RECORDS, Record

from .audit import add_audit

T = TypeVar("T")


def records(kind: str, names: Sequence[str], context: CallContext) -> SansIO[list[Record]]:
    """Return the records of a kind, or those of these names, by name."""
    parameters = {"kind": kind, "names": list(names) or None}
    [[[now_us]], found] = yield from execute_all(
        context.now(), Statement("list_records", parameters)
    )
    return [one for row in found if not (one := Record(*row)).expired(now_us)]


def set_record(
    kind: str,
    name: str,
    after: Record | None,
    expected: Record | None,
    attribution: Attribution,
    context: CallContext,
) -> SansIO[None]:
    """Store a record if it is as expected until then.

    Where one is added, those that expired are dropped.
    """
    yield from execute("lock_keys", names=[f"record/{kind}"])
    found = yield from records(kind, [name], context)
    if (found[0] if found else None) != expected:
        raise ChangedMeanwhile(kind, name)
    [[[now_us]]] = yield from execute_all(context.now())
    if after is not None and expected is None:
        [[count]] = yield from execute("forget_records", kind=kind, now_us=now_us)
        if count >= MAX_RECORDS:
            raise InvalidInput(kind, f"there are {MAX_RECORDS:,} already: remove some first")
    yield from execute_all(set_statement(kind, name, after))
    if attribution.audit:
        yield from add_audit(attribution.audit, now_us)


def with_once(
    verb: SansIO[T],
    record: Record | None,
    context: CallContext,
    changed: Callable[[T], bool] = lambda _done: True,
) -> SansIO[T]:
    """Perform a verb, and commit a record with what it ``changed``.

    Raise ``ChangedMeanwhile`` if the record exists; one that another transaction is about to
    commit is waited for.
    """
    if record is None:
        return (yield from verb)
    done: T = yield from _without_commit(verb)
    if changed(done):
        [[[now_us]]] = yield from execute_all(context.now())
        added = yield from execute(
            "add_once",
            kind=record.kind,
            name=record.name,
            value=record.value,
            expires_at_us=record.expires_at_us,
            now_us=now_us,
        )
        if not added:
            raise ChangedMeanwhile(record.kind, record.name)
    return done


def _without_commit(verb: SansIO[T]) -> SansIO[T]:
    """Perform a verb that may commit with its last statements, and leave that to the caller."""
    try:
        batch = next(verb)
        while True:
            batch = verb.send((yield batch._replace(last=False)))
    except StopIteration as stop:
        result: T = stop.value
        return result


def set_statement(kind: str, name: str, after: Record | None) -> Statement:
    """Return the statement that stores a record, or removes it."""
    value, expires_at_us = (None, 0) if after is None else (after.value, after.expires_at_us)
    parameters = {"kind": kind, "name": name, "value": value, "expires_at_us": expires_at_us}
    return Statement("set_record", parameters)
