"""The engine contract as tests: subclass ``EngineConformance`` for your engine.

    class TestMyEngine(EngineConformance):
        async def open_engine(self, clock, options):
            return await MyEngine.open(clock=clock, options=options)

Every test opens its own engine on a virtual clock and calls ``validate`` at the end. No test
sleeps. The tests need pytest.
"""

from __future__ import annotations

from .archive import ArchiveRules, PurgeRules
from .audit import AuditRules, FlagAndScheduleRules
from .audit_search import AuditFactRules, AuditSearchRules
from .broken_dependencies import BrokenDependencyRules
from .cancel import CancelRules
from .chains import ChainRules, ChainSettleRules
from .changes import ChangeRules
from .claim import ClaimRules
from .confirm import ConfirmRules
from .dependencies import DependencyRules
from .edit import EditRules
from .enqueue import EnqueueRules
from .event_search import EventSearchRules
from .events import AppendRules, EventJobRules, EventReachRules
from .explain import ExplainRules
from .find import FindRules
from .fixture import EngineFixture
from .fleet import CommandRules, LeaseReadingRules, RegistryRules
from .group_lives import GroupLifeRules
from .groups import GroupRules
from .history import HistoryRules
from .holds import HoldRules
from .keys import KeyRules
from .lease import LeaseRules
from .once import CommittedOnceRules
from .operations import OperationPaceRules, OperationRules
from .outages import OutageRules
from .policies import PolicyRules
from .reach import ReachRules
from .records import StoredRecordRules
from .replay import ReplayRules
from .retention import RetentionRules
from .samples import SampleRules
from .settle import SettleRules
from .subscriptions import SubscriptionRules
from .turns import FairShareRules, RateRules

__all__ = ["EngineConformance", "EngineFixture"]


class JobRules(EnqueueRules, ClaimRules, SettleRules, LeaseRules, ReachRules):
    """Enqueue, claim, settle, lease and reach."""


class BlockingRules(
    KeyRules,
    ChainRules,
    ChainSettleRules,
    HoldRules,
    DependencyRules,
    BrokenDependencyRules,
    ConfirmRules,
):
    """What holds a job back: its key, dependencies, confirmation."""


class LimitRules(PolicyRules, RateRules, OutageRules, FairShareRules):
    """Limits of a queue: policies, rates, outages, fair share."""


class QueryRules(
    FindRules,
    GroupRules,
    GroupLifeRules,
    HistoryRules,
    RetentionRules,
    SampleRules,
    ExplainRules,
):
    """Find, groups, history, what is kept of it, samples, and why jobs wait."""


class AdminRules(ReplayRules, CancelRules, ArchiveRules, PurgeRules, EditRules):
    """Replay, cancel, archive, restore, purge and edit."""


class BulkRules(OperationRules, OperationPaceRules):
    """Operations: their members, their pace, their outcomes."""


class RecordRules(
    AuditRules,
    AuditFactRules,
    AuditSearchRules,
    FlagAndScheduleRules,
    StoredRecordRules,
    CommittedOnceRules,
):
    """The audit, flags, schedules and records."""


class LookingRules(ChangeRules):
    """What a page that is looked at stands on."""


class FleetRules(RegistryRules, CommandRules, LeaseReadingRules):
    """The registry of processes, and commands to them."""


class EventRules(AppendRules, EventReachRules, EventJobRules, EventSearchRules, SubscriptionRules):
    """Events, their jobs, and subscriptions."""


class EngineConformance(
    JobRules,
    BlockingRules,
    LimitRules,
    QueryRules,
    AdminRules,
    BulkRules,
    RecordRules,
    LookingRules,
    FleetRules,
    EventRules,
):
    """Every rule of the engine contract, one test each."""
