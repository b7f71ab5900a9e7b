"""The client engine: the verbs of an engine that another process on this machine owns.

A call whose answer is lost is made again, and what the store has then tells what became of the
first one (``doubt``): nothing is lost and nothing is done twice because a connection broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from holdfast.engines.argument_checks import (
    check_all,
    check_attribution,
    check_limit,
    check_names,
    check_reach,
)
from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    Admission,
    Capabilities,
    Claim,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from holdfast.engines.entropy import random_bytes as pooled_bytes
from holdfast.engines.lost_replies import Known, SentEnqueue, accepted
from holdfast.engines.protocol import messages
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.errors import DuplicateId, HoldfastError, InvalidInput, LeaseLost
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    Job,
    JobRef,
    NewJob,
    admit,
    check_id,
    check_seconds,
)
from holdfast.model.outcome import Outcome, release

from .admin import RemoteOperations, check_caller
from .connection import ConnectionBroken
from .transport import Transport

LONGEST_ADDRESS_BYTES = 107


class ClientEngine(RemoteOperations):
    """An engine over the Unix socket on which its owner listens.

    Bound to the event loop on which it is first used. When nobody listens it tries for
    ``patience_seconds``, then raises ``NoOwner``.
    """

    def __init__(
        self,
        path: str,
        *,
        patience_seconds: float = 5.0,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = pooled_bytes,
    ) -> None:
        if (
            type(path) is not str
            or "\0" in path
            or not 0 < len(os.fsencode(path)) <= LONGEST_ADDRESS_BYTES
        ):
            raise InvalidInput("path", f"{path!r} is not the path of a Unix socket")
        check_seconds("patience_seconds", patience_seconds)
        self.capabilities = Capabilities(name="client", durable=True, shared=True)
        self.leases_refused = 0
        super().__init__(Transport(path, patience_seconds))
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes
        self._handing_back: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> int:
        """How many requests went out for calls that do not wait: calls at once share one."""
        return self._remote.requests

    # --- move --------------------------------------------------------------------------------

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        jobs = check_all("jobs", jobs, NewJob)
        check_caller(caller)
        if on_duplicate not in ("refuse", "skip"):
            raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
        now_us = self._clock.now_us()
        named = _with_ids(jobs, caller, now_us, self._random_bytes)
        body = messages.ENQUEUE.write_call(messages.EnqueueCall(named, caller, on_duplicate))
        try:
            return await self._remote.once(messages.ENQUEUE, body)
        except ConnectionBroken:
            fresh = [new.id for new, job in zip(named, jobs, strict=True) if job.id is None]
            order = SentEnqueue(named, frozenset(filter(None, fresh)), caller, on_duplicate, now_us)
            return await self._enqueue_again(order)

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        outcomes = _checked(check_all("outcomes", outcomes, Outcome))
        check_caller(caller)
        body = messages.SETTLE.write_call(messages.SettleCall(outcomes, caller))
        now_us = self._clock.now_us()
        try:
            answer = await self._remote.once(messages.SETTLE, body)
            return self._counted([messages.lease_lost(lost) for lost in answer])
        except ConnectionBroken:
            answer = await self._remote.insist(messages.SETTLE, body)
            return await self._settled_again(outcomes, answer, caller, now_us)

    async def claim(
        self,
        *,
        queues: Collection[str],
        worker: str,
        tasks: Collection[str] | None = None,
        limit: int = 1,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
        settle: Sequence[Outcome] = (),
        caller: Caller = SYSTEM,
    ) -> Claim:
        """See ``Engine.claim``."""
        check_limit(limit)
        check_id(worker, "worker")
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        outcomes = _checked(check_all("settle", settle, Outcome))
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        check_caller(caller)
        call = messages.ClaimCall(
            list(check_names("queues", queues)),
            worker,
            None if tasks is None else list(check_names("tasks", tasks)),
            limit,
            float(lease_seconds),
            0.0 if outcomes else float(wait_seconds),  # a claim that settles does not wait
            outcomes,
            caller,
        )
        if call.wait_seconds > 0:
            answer = await self._remote.wait(
                messages.CLAIM,
                lambda seconds: replace(call, wait_seconds=seconds),
                call.wait_seconds,
                self._hand_back,
            )
            return Claim(answer.jobs, [])
        body = messages.CLAIM.write_call(call)
        now_us = self._clock.now_us()
        try:
            answer = await self._remote.once(messages.CLAIM, body, orphaned=self._hand_back)
            return Claim(
                answer.jobs, self._counted([messages.lease_lost(a) for a in answer.settled])
            )
        except ConnectionBroken:
            answer = await self._remote.insist(messages.CLAIM, body, orphaned=self._hand_back)
            settled = await self._settled_again(outcomes, answer.settled, caller, now_us)
            return Claim(answer.jobs, settled)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_all("held", held, HeldJob)  # type: ignore[type-abstract]
        check_caller(caller)
        names = [messages.LeaseRef(lease.tenant, lease.id, lease.token) for lease in leases]
        body = messages.EXTEND.write_call(messages.ExtendCall(names, float(lease_seconds), caller))
        answers: list[Renewal | LeaseLost] = []
        for answer in await self._remote.call(messages.EXTEND, body):
            if answer.lost is not None:
                self.leases_refused += 1
                answers.append(LeaseLost(answer.lost.job_id, answer.lost.token))
            else:
                answers.append(Renewal(answer.lease_until_us, answer.stop_requested))
        return answers

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        attribution: Attribution | None = None,
        every_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """See ``Engine.reclaim``."""
        del every_seconds  # the owner's own loop is the only one
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        check_caller(caller)
        names = [messages.JobName(ref.tenant, ref.id) for ref in refs]
        if attribution is not None:
            check_attribution(attribution)
        call = messages.ReclaimCall(limit, names, caller, attribution)
        if attribution is not None:
            return await self._once(messages.RECLAIM, call)  # a person's is done once
        return await self._remote.call(messages.RECLAIM, messages.RECLAIM.write_call(call))

    async def close(self) -> None:
        """End the connections: calls under way are answered, claims that wait are not."""
        if self._handing_back:
            await asyncio.wait(self._handing_back, timeout=self._remote.patience_seconds)
        await self._remote.close()

    # --- when an answer was lost -------------------------------------------------------------

    async def _enqueue_again(self, order: SentEnqueue) -> list[Receipt]:
        advice = f"ask for {_some(order.jobs)} before you enqueue again"
        call = messages.EnqueueCall(order.jobs, order.caller, order.on_duplicate)
        try:
            receipts = await self._remote.insist(
                messages.ENQUEUE, messages.ENQUEUE.write_call(call), advice
            )
        except DuplicateId as refused:
            if not order.was_taken(refused, await self._known(order.names(), order.caller)):
                raise
            # It was taken whole, so there is nothing left to take: only to learn which is which.
            call = replace(call, on_duplicate="skip")
            receipts = await self._remote.insist(
                messages.ENQUEUE, messages.ENQUEUE.write_call(call), advice
            )
        if all(receipt.admission is Admission.CREATED for receipt in receipts):
            return receipts
        return order.restored(receipts, await self._known(order.names(), order.caller))

    async def _settled_again(
        self,
        outcomes: Sequence[Outcome],
        answer: Sequence[messages.LostLease | None],
        caller: Caller,
        sent_at_us: int,
    ) -> list[LeaseLost | None]:
        answers = [messages.lease_lost(lost) for lost in answer]
        names = [
            (outcome.tenant, outcome.id)
            for outcome, refused in zip(outcomes, answers, strict=True)
            if refused is not None
        ]
        if names:
            answers = accepted(outcomes, answers, await self._known(names, caller), sent_at_us)
        return self._counted(answers)

    async def _known(self, names: Sequence[tuple[str, str]], caller: Caller) -> Known:
        known: dict[tuple[str, str], Job] = {}
        for tenant in dict.fromkeys(tenant for tenant, _id in names):
            ids = [job_id for whose, job_id in names if whose == tenant]
            for job in await self.get(ids, tenant=tenant, caller=caller):
                if job is not None:
                    known[job.tenant, job.id] = job
        return known

    def _hand_back(self, status: int, body: bytes) -> None:
        """Release what came for a claim that was cancelled: nobody is there to hold it."""
        if status != messages.OK:
            return
        with contextlib.suppress(*messages.UNREADABLE):
            jobs = messages.CLAIM.read_answer(body).jobs
            if jobs:
                task = asyncio.get_running_loop().create_task(self._release(jobs))
                self._handing_back.add(task)
                task.add_done_callback(self._handing_back.discard)

    async def _release(self, jobs: Sequence[Job]) -> None:
        with contextlib.suppress(HoldfastError):  # their leases run out instead
            await self.settle([release(job) for job in jobs])

    def _counted(self, answers: list[LeaseLost | None]) -> list[LeaseLost | None]:
        for answer in answers:
            if answer is not None:
                self.leases_refused += 1
        return answers


def _with_ids(
    jobs: Sequence[NewJob], caller: Caller, now_us: int, random_bytes: Callable[[int], bytes]
) -> list[NewJob]:
    """Return the jobs as they are sent: checked, each with an id, its payload as JSON."""
    nameless = sum(new.id is None for new in jobs)
    fresh_ids = iter(uuid7s(now_us, random_bytes(RANDOM_BYTES * nameless)))
    named: list[NewJob] = []
    for new in jobs:
        if not caller.unlimited:
            check_reach(new.tenant, new.scope, caller)
        job_id = next(fresh_ids) if new.id is None else check_id(new.id)
        # How large a payload may be is for the owner to say.
        job = admit(new, job_id, now_us, 0, messages.MAX_BODY_BYTES)
        named.append(replace(new, id=job_id, payload=job.payload))
    return named


def _checked(outcomes: list[Outcome]) -> list[Outcome]:
    for outcome in outcomes:
        outcome.check()
    return outcomes


def _some(jobs: Sequence[NewJob]) -> str:
    named = ", ".join(repr(new.id) for new in jobs[:5])
    return f"{named} and {len(jobs) - 5} more" if len(jobs) > 5 else named
