"""Limits of queues that have a policy: turns of tenants, rates, jobs in flight."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from holdfast.model.job import Job
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

_TURN_OF_A_CLAIM = 2**62
"""Above every token: turns taken within one claim come after all earlier ones."""

Tenant = str
Order = tuple[int, int, int]


class LimitUsage(msgspec.Struct, array_like=True):
    """What a queue with a policy remembers of its claims."""

    spent_until_us: int = 0
    turns: dict[Tenant, int] = {}
    """The token of each tenant's last claim."""


class QueueLimits:
    """The policies, and the usage that they limit."""

    def __init__(self) -> None:
        self.policies: dict[str, QueuePolicy] = {}
        self.limited: set[str] = set()
        """The queues whose policy limits what may be claimed."""
        self.states: dict[str, LimitUsage] = {}
        self._in_flight_of_key: Counter[tuple[str, str, str]] = Counter()

    def ordered(self, queue: str) -> bool:
        """Whether jobs of one key wait for each other in this queue."""
        policy = self.policies.get(queue)
        return policy is None or policy.ordered

    def set(self, queue: str, policy: QueuePolicy | None) -> None:
        """Give a queue a policy; its turns and its rate start anew."""
        self.states.pop(queue, None)
        self.limited.discard(queue)
        if policy is None:
            self.policies.pop(queue, None)
        else:
            self.policies[queue] = policy
            self.states[queue] = LimitUsage()
            if policy.limits_claims or not policy.ordered:
                self.limited.add(queue)

    def claimed(self, job: Job, at_us: int) -> None:
        """Record a claim."""
        state = self.states.get(job.queue)
        if state is not None:
            state.turns[job.tenant] = job.token
            state.spent_until_us = self.policies[job.queue].spend(state.spent_until_us, at_us)

    def started(self, job: Job) -> None:
        """Count a job of its key as in flight."""
        if job.ties.key is not None:
            self._in_flight_of_key[job.tenant, job.queue, job.ties.key] += 1

    def ended(self, job: Job) -> None:
        """Count a job of its key as no longer in flight."""
        if job.ties.key is not None:
            name = job.tenant, job.queue, job.ties.key
            self._in_flight_of_key[name] -= 1
            if not self._in_flight_of_key[name]:
                del self._in_flight_of_key[name]

    def retire(self, queue: str, tenant: str) -> None:
        """Forget the turn of a tenant that has no work left in this queue."""
        state = self.states.get(queue)
        if state is not None:
            state.turns.pop(tenant, None)

    def usage(self, job: Job) -> tuple[int, int]:
        """Return how many jobs of its key are in flight, and how far its queue's rate is spent."""
        key = job.tenant, job.queue, job.ties.key or ""
        of_key = 0 if job.ties.key is None else self._in_flight_of_key[key]
        state = self.states.get(job.queue)
        return of_key, 0 if state is None else state.spent_until_us

    def opens_at_us(self, queue: str, now_us: int) -> int | None:
        """Return when time alone allows this queue more claims."""
        state = self.states.get(queue)
        if state is None:
            return None
        return self.policies[queue].opens_at_us(state.spent_until_us, now_us)

    def allowed(
        self,
        queue: str,
        jobs_of: Mapping[Tenant, Iterator[Job]],
        in_flight: Mapping[Tenant, int],
        now_us: int,
    ) -> Iterator[Job]:
        """Yield the jobs that the queue's policy allows, from the due jobs of each tenant.

        A job counts as taken when the next one is requested.
        """
        policy = self.policies.get(queue, DEFAULT_POLICY)
        state = self.states.get(queue, LimitUsage())
        room = policy.room(sum(in_flight.values()), state.spent_until_us, now_us)
        taken_of: Counter[Tenant] = Counter()
        keys: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        heads: list[tuple[int, Order, Tenant, Job, Iterator[Job]]] = []

        def admit(turn: int, tenant: Tenant, jobs: Iterator[Job]) -> None:
            """Push the tenant's next allowed job on the heap."""
            most = policy.max_per_tenant
            if most is not None and in_flight[tenant] + taken_of[tenant] >= most:
                return
            for job in jobs:
                name = job.tenant, queue, job.ties.key or ""
                if (
                    policy.max_per_key is None
                    or job.ties.key is None
                    or (self._in_flight_of_key[name] + keys[name] < policy.max_per_key)
                ):
                    heapq.heappush(heads, (turn, _order(job), tenant, job, jobs))
                    return

        for tenant, jobs in jobs_of.items():
            admit(state.turns.get(tenant, 0) if policy.fair else 0, tenant, jobs)
        taken = 0
        while heads and (room is None or taken < room):
            _turn, _place, tenant, job, jobs = heapq.heappop(heads)
            yield job
            taken += 1
            taken_of[tenant] += 1
            if job.ties.key is not None:
                keys[job.tenant, queue, job.ties.key] += 1
            admit(_TURN_OF_A_CLAIM + taken if policy.fair else 0, tenant, jobs)


def _order(job: Job) -> Order:
    return -job.priority, job.run_at_us, job.seq
