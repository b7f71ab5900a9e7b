"""Logs the audit of a server; an engine in this process logs its own: see ``engines.audit_log``."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from holdfast.engines.audit_log import log_audit
from holdfast.model.audit import AuditRecord
from holdfast.model.job import MICROSECONDS


class TakeUnlogged(Protocol):
    """Returns the next audit records that are to be logged, and counts them as logged."""

    def __call__(self, *, every_seconds: float) -> Awaitable[Sequence[AuditRecord]]:
        """Take them, if no process has done so within this time."""


class AuditLogLoop:
    """Logs the audit of a server, which many processes write: each entry once."""

    interval_seconds = 2.0

    def __init__(self, take: TakeUnlogged) -> None:
        self._take = take

    async def step(self, now_us: int) -> int:
        """Log what is new, unless another process has just done so."""
        for record in await self._take(every_seconds=self.interval_seconds):
            log_audit(record)
        return now_us + int(self.interval_seconds * MICROSECONDS)
