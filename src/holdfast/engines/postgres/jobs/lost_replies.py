"""What became of calls whose answers were lost: the tables tell, and then the rest is done."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import Admission, OnDuplicate, Receipt
from holdfast.engines.lost_replies import Known, SentEnqueue
from holdfast.engines.postgres.admin import queries
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Row, Statement, execute_all
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.model.access import SYSTEM
from holdfast.model.errors import DuplicateId, HoldfastError, Unavailable
from holdfast.model.history import AttemptRecord
from holdfast.model.job import Job, encode_payload
from holdfast.model.outcome import Outcome, OutcomeKind

from . import claim, enqueue
from .claim import ClaimRequest
from .enqueue import EnqueueRequest
from .settle import Lease, first_of_each, lease_of, leases

_ATTEMPT = msgspec.msgpack.Decoder(AttemptRecord)
_COMPLETED = 3
_MOST = 100_000
"""How many doubts are remembered: whoever never asks again has given up."""
_LOST = ("lost", "dead")
"""What the end of a lease makes of an attempt: the failure tells whose doing it was."""


def unknown(verb: str) -> Unavailable:
    """Return what to say when nobody knows whether something was done."""
    return Unavailable(
        f"the connection broke before an answer came, so that nobody here knows whether "
        f"this {verb} was recorded: look before you call again"
    )


async def enqueued(
    request: EnqueueRequest, sent_us: int, database: Database, on: CallContext, *, late: bool
) -> list[Receipt] | Exception:
    """Find out what became of an enqueue; do it if nothing did. Return its answer.

    ``late`` is whether the server may yet carry out what it was sent first. Then ids that were
    made for this call are not sent again: a job of such an id, run and finished, would be taken
    once more. Raise ``Unavailable`` if the server cannot be asked.
    """
    fresh = iter(request.ids)
    try:
        named = [
            replace(new, id=new.id or next(fresh), payload=encode_payload(new.payload))
            for new in request.jobs
        ]
    except HoldfastError as error:
        return error
    order = SentEnqueue(
        named, frozenset(request.ids), request.caller, request.on_duplicate, sent_us
    )
    look = lambda: queries.get(order.names(), SYSTEM, on)
    known = await database.read(look)
    if not _is_taken(order, known):
        if late and request.simple:
            return unknown("enqueue")
        answer = await _send(order, request.on_duplicate, database, on)
        if not _may_be_our_doing(order, answer):
            return answer
        known = await database.read(look)  # the first try has come through after that look
        if not _is_taken(order, known):
            return answer
    answer = await _send(order, "skip", database, on)
    return answer if isinstance(answer, Exception) else order.restored(answer, known)


def _is_taken(order: SentEnqueue, known: Known) -> bool:
    return any(order.has(new, known) for new in order.jobs)


async def _send(
    order: SentEnqueue, on_duplicate: OnDuplicate, database: Database, on: CallContext
) -> list[Receipt] | Exception:
    request = EnqueueRequest(order.jobs, order.caller, on_duplicate, ())
    try:
        await database.perform(lambda: enqueue.enqueue([request], on))
    except CommitUnknown:
        return unknown("enqueue")
    return request.answer


def _may_be_our_doing(order: SentEnqueue, answer: list[Receipt] | Exception) -> bool:
    """Whether the first try may be what a second one was refused for."""
    if isinstance(answer, Exception):
        return isinstance(answer, DuplicateId)
    return any(
        receipt.admission is not Admission.CREATED and receipt.id == new.id
        for new, receipt in zip(order.jobs, answer, strict=True)
    )


class LostReplies:
    """What may have been done though nobody was told, until the tables have been asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settles: set[Lease] = set()
        self._claims: list[ClaimRequest] = []

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Remember that these may have been recorded."""
        if len(self._settles) > _MOST:
            self._settles.clear()
        self._settles.update(map(lease_of, outcomes))

    async def settled(self, outcomes: Sequence[Outcome], done: Collection[Lease]) -> set[Lease]:
        """Return which other leases were ended by these outcomes, in a try without an answer."""
        first = first_of_each(outcomes)
        doubtful = self._settles.intersection(first)
        by_token = {lease[2]: first[lease] for lease in doubtful if lease not in done}
        found: set[Lease] = set()
        if by_token:
            asked = Statement("find_settled", leases(map(lease_of, by_token.values())))
            [told] = await self._database.read(lambda: execute_all(asked))
            recorded = [by_token[row[0]] for row in told if _records(row, by_token[row[0]])]
            found.update(map(lease_of, recorded))
        self._settles -= doubtful
        return found

    async def claimed(self, wish: ClaimRequest) -> list[Job]:
        """Return what a claim took whose answer was lost; ``unclaimed`` asks again if it must."""
        try:
            return await self._database.read(lambda: claim.claimed_under(wish))
        except Unavailable:
            if len(self._claims) < _MOST:
                self._claims.append(wish)
            raise

    async def unclaimed(self) -> list[Job]:
        """Return what was taken by claims that could not be asked after: nobody works on it."""
        found: list[Job] = []
        while self._claims:
            try:
                found += await self.claimed(self._claims.pop())
            except Unavailable:
                if not found:
                    raise
                break  # those that are known go back first
        return found


def _records(row: Row, outcome: Outcome) -> bool:
    """Whether a token's end is what this outcome makes of it, not what the loss of a lease does."""
    _token, state, packed = row
    if outcome.kind is OutcomeKind.COMPLETED or packed is None:
        return outcome.kind is OutcomeKind.COMPLETED and state == _COMPLETED
    attempt = _ATTEMPT.decode(packed)
    return attempt.ending not in _LOST or attempt.failure == outcome.failure
