"""Queues with a policy of their own: whose turn it is, and how much is let through."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from holdfast.model.job import Job
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

_TURN_OF_A_CLAIM = 2**62
"""Later than every token: turns taken within one claim come after all before it."""

Tenant = str
Order = tuple[int, int, int]


class LimitUsage(msgspec.Struct, array_like=True):
    """What a gate remembers of the claims so far."""

    spent_until_us: int = 0
    turns: dict[Tenant, int] = {}
    """The token of each tenant's last claim."""


class QueueLimits:
    """The policies, and what they need to know."""

    def __init__(self) -> None:
        self.policies: dict[str, QueuePolicy] = {}
        self.states: dict[str, LimitUsage] = {}
        self._flying_of_key: Counter[tuple[str, str, str]] = Counter()

    def ordered(self, queue: str) -> bool:
        """Whether jobs of one key wait for each other in this queue."""
        policy = self.policies.get(queue)
        return policy is None or policy.ordered

    def set(self, queue: str, policy: QueuePolicy | None) -> None:
        """Give a queue a policy; its turns and its rate begin anew."""
        self.states.pop(queue, None)
        if policy is None:
            self.policies.pop(queue, None)
        else:
            self.policies[queue] = policy
            self.states[queue] = LimitUsage()

    def claimed(self, job: Job, at_us: int) -> None:
        """Take note of a claim."""
        state = self.states.get(job.queue)
        if state is not None:
            state.turns[job.tenant] = job.token
            state.spent_until_us = self.policies[job.queue].spend(state.spent_until_us, at_us)

    def took_off(self, job: Job) -> None:
        """Count a job of its key in flight."""
        if job.ties.key is not None:
            self._flying_of_key[job.tenant, job.queue, job.ties.key] += 1

    def landed(self, job: Job) -> None:
        """Count a job of its key in flight less."""
        if job.ties.key is not None:
            name = job.tenant, job.queue, job.ties.key
            self._flying_of_key[name] -= 1
            if not self._flying_of_key[name]:
                del self._flying_of_key[name]

    def retire(self, queue: str, tenant: str) -> None:
        """Forget the turn of a tenant that has no work left in this queue."""
        state = self.states.get(queue)
        if state is not None:
            state.turns.pop(tenant, None)

    def opens_at_us(self, queue: str, now_us: int) -> int | None:
        """Return when this queue lets more through only because time has passed."""
        state = self.states.get(queue)
        if state is None:
            return None
        return self.policies[queue].opens_at_us(state.spent_until_us, now_us)

    def through(
        self,
        queue: str,
        lines: Mapping[Tenant, Iterator[Job]],
        in_flight: Mapping[Tenant, int],
        now_us: int,
    ) -> Iterator[Job]:
        """Let jobs through, from the lines of each tenant, as the queue's policy has it.

        A job counts as taken when the next one is asked for.
        """
        policy = self.policies.get(queue, DEFAULT_POLICY)
        state = self.states.get(queue, LimitUsage())
        room = policy.room(sum(in_flight.values()), state.spent_until_us, now_us)
        flying: Counter[Tenant] = Counter()
        keys: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        heads: list[tuple[int, Order, Tenant, Job, Iterator[Job]]] = []

        def admit(turn: int, tenant: Tenant, line: Iterator[Job]) -> None:
            """Put the tenant's next job that may go on the heap."""
            most = policy.max_per_tenant
            if most is not None and in_flight[tenant] + flying[tenant] >= most:
                return
            for job in line:
                name = job.tenant, queue, job.ties.key or ""
                if (
                    policy.max_per_key is None
                    or job.ties.key is None
                    or (self._flying_of_key[name] + keys[name] < policy.max_per_key)
                ):
                    heapq.heappush(heads, (turn, _order(job), tenant, job, line))
                    return

        for tenant, line in lines.items():
            admit(state.turns.get(tenant, 0) if policy.fair else 0, tenant, line)
        taken = 0
        while heads and (room is None or taken < room):
            _turn, _place, tenant, job, line = heapq.heappop(heads)
            yield job
            taken += 1
            flying[tenant] += 1
            if job.ties.key is not None:
                keys[job.tenant, queue, job.ties.key] += 1
            admit(_TURN_OF_A_CLAIM + taken if policy.fair else 0, tenant, line)


def _order(job: Job) -> Order:
    return -job.priority, job.run_at_us, job.seq
