"""Lost replies: the tables tell which calls were recorded, and the rest is done again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import Admission, OnDuplicate, Receipt
from holdfast.engines.lost_replies import Known, SentEnqueue
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.admin import queries
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Row, execute
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.model.access import SYSTEM
from holdfast.model.errors import DuplicateId, HoldfastError, Unavailable
from holdfast.model.job import Job, encode_payload
from holdfast.model.outcome import Outcome, OutcomeKind

from . import claim_statements, enqueue_statements
from .claim_statements import ClaimRequest
from .enqueue_statements import EnqueueRequest
from .settle_statements import Lease, first_of_each, lease_columns, lease_of

_COMPLETED = 3
_MAX_REMEMBERED = 100_000
"""How many lost replies are remembered: callers that never ask again have given up."""
_LOST = ("lost", "dead")
"""The endings of an attempt that a lost lease has too: only the failure tells them apart."""


def outcome_unknown(verb: str) -> Unavailable:
    """Return the error for a verb that may or may not have been recorded."""
    return Unavailable(
        f"the connection broke before the reply came: outcome unknown, this {verb} may or may not "
        "have been recorded; check before you call again"
    )


async def resolve_enqueue(
    request: EnqueueRequest,
    sent_us: int,
    database: Database,
    context: CallContext,
    *,
    may_still_commit: bool,
) -> list[Receipt] | Exception:
    """Find out whether an enqueue was recorded; if not, repeat it. Return its answer.

    If the server ``may_still_commit`` the first try, ids that were made for this call are not sent
    again: such a job could run and finish, and then be accepted a second time. Raise
    ``Unavailable`` if the server cannot be asked.
    """
    fresh = iter(request.ids)
    try:
        named = [
            replace(new, id=new.id or next(fresh), payload=encode_payload(new.payload))
            for new in request.jobs
        ]
    except HoldfastError as error:
        return error
    sent = SentEnqueue(named, frozenset(request.ids), request.caller, request.on_duplicate, sent_us)
    look = lambda: queries.get(sent.names(), SYSTEM, context)
    known = await database.read(look)
    if not _is_recorded(sent, known):
        if may_still_commit and request.simple:
            return outcome_unknown("enqueue")
        answer = await _repeat(sent, request.on_duplicate, database, context)
        if not _may_collide_with_first_try(sent, answer):
            return answer
        known = await database.read(look)  # the first try was committed after the first look
        if not _is_recorded(sent, known):
            return answer
    answer = await _repeat(sent, "skip", database, context)
    return answer if isinstance(answer, Exception) else sent.restored(answer, known)


def _is_recorded(sent: SentEnqueue, known: Known) -> bool:
    return any(sent.has(new, known) for new in sent.jobs)


async def _repeat(
    sent: SentEnqueue, on_duplicate: OnDuplicate, database: Database, context: CallContext
) -> list[Receipt] | Exception:
    request = EnqueueRequest(sent.jobs, sent.caller, on_duplicate, ())
    try:
        await database.perform(lambda: enqueue_statements.enqueue([request], context))
    except CommitUnknown:
        return outcome_unknown("enqueue")
    return request.answer


def _may_collide_with_first_try(sent: SentEnqueue, answer: list[Receipt] | Exception) -> bool:
    """Whether the second try may have been refused because of the first."""
    if isinstance(answer, Exception):
        return isinstance(answer, DuplicateId)
    return any(
        receipt.admission is not Admission.CREATED and receipt.id == new.id
        for new, receipt in zip(sent.jobs, answer, strict=True)
    )


class LostReplies:
    """Settles and claims that may have been recorded, until the tables have been asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settles: set[Lease] = set()
        self._claims: list[ClaimRequest] = []

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Remember that these may have been recorded."""
        if len(self._settles) > _MAX_REMEMBERED:
            self._settles.clear()
        self._settles.update(map(lease_of, outcomes))

    async def settled(self, outcomes: Sequence[Outcome], done: Collection[Lease]) -> set[Lease]:
        """Return which other leases these outcomes ended in a try whose reply was lost."""
        first = first_of_each(outcomes)
        unknown = self._settles.intersection(first)
        by_token = {lease[2]: first[lease] for lease in unknown if lease not in done}
        found: set[Lease] = set()
        if by_token:
            columns = lease_columns(map(lease_of, by_token.values()))
            ended = await self._database.read(lambda: execute("find_settled", **columns))
            recorded = [by_token[row[0]] for row in ended if _records(row, by_token[row[0]])]
            found.update(map(lease_of, recorded))
        self._settles -= unknown
        return found

    async def claimed(self, request: ClaimRequest) -> list[Job]:
        """Return what a claim took whose reply was lost; ``unclaimed`` asks again if this fails."""
        try:
            return await self._database.read(lambda: claim_statements.find_claimed(request))
        except Unavailable:
            if len(self._claims) < _MAX_REMEMBERED:
                self._claims.append(request)
            raise

    async def unclaimed(self) -> list[Job]:
        """Return the jobs of claims that could not be looked up before: no worker has them."""
        found: list[Job] = []
        while self._claims:
            try:
                found += await self.claimed(self._claims.pop())
            except Unavailable:
                if not found:
                    raise
                break  # release those that are known first
        return found


def _records(row: Row, outcome: Outcome) -> bool:
    """Whether an attempt ended by this outcome, and not because its lease was lost."""
    _token, state, packed = row
    if outcome.kind is OutcomeKind.COMPLETED or packed is None:
        return outcome.kind is OutcomeKind.COMPLETED and state == _COMPLETED
    attempt = rows.ATTEMPT.decode(packed)
    return attempt.ending not in _LOST or attempt.failure == outcome.failure
