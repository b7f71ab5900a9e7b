"""The engine contract as tests: subclass ``EngineConformance`` for your engine.

    class TestMyEngine(EngineConformance):
        async def open_engine(self, clock, options):
            return await MyEngine.open(clock=clock, options=options)

Every test opens an engine of its own on a virtual clock, and asks the engine to validate itself
at the end. Nothing here sleeps. The tests need pytest.
"""

from __future__ import annotations

from .archive import ArchiveRules, PurgeRules
from .audit import AuditRules, GoverningRules
from .broken_dependencies import BrokenDependencyRules
from .cancel import CancelRules
from .claim import ClaimRules
from .confirm import ConfirmRules
from .dependencies import DependencyRules
from .edit import EditRules
from .enqueue import EnqueueRules
from .find import FindRules
from .fixture import EngineFixture
from .groups import GroupRules
from .history import HistoryRules
from .holds import HoldRules
from .keys import KeyRules
from .lease import LeaseRules
from .policies import PolicyRules
from .reach import ReachRules
from .replay import ReplayRules
from .settle import SettleRules
from .turns import FairShareRules, OutageRules, RateRules

__all__ = ["EngineConformance", "EngineFixture"]


class MovingRules(EnqueueRules, ClaimRules, SettleRules, LeaseRules, ReachRules):
    """How work moves."""


class WaitingRules(KeyRules, HoldRules, DependencyRules, BrokenDependencyRules, ConfirmRules):
    """What work waits for: others of its key, other jobs, a person."""


class AllowingRules(PolicyRules, RateRules, OutageRules, FairShareRules):
    """What a queue allows."""


class LookingRules(FindRules, GroupRules, HistoryRules):
    """What can be seen."""


class OperatingRules(ReplayRules, CancelRules, ArchiveRules, PurgeRules, EditRules):
    """What people do."""


class KeepingRules(AuditRules, GoverningRules):
    """Who did it and why, and what governs work."""


class EngineConformance(
    MovingRules, WaitingRules, AllowingRules, LookingRules, OperatingRules, KeepingRules
):
    """Every rule that an engine obeys, a test each."""
