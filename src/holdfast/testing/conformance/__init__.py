"""The engine contract as tests: subclass ``EngineConformance`` for your engine.

    class TestMyEngine(EngineConformance):
        async def open_engine(self, clock, options):
            return await MyEngine.open(clock=clock, options=options)

Every test opens an engine of its own on a virtual clock, and asks the engine to validate itself
at the end. Nothing here sleeps. The tests need pytest.
"""

from __future__ import annotations

from .claim import ClaimRules
from .desk import Desk
from .enqueue import EnqueueRules
from .lease import LeaseRules
from .reach import ReachRules
from .settle import SettleRules

__all__ = ["Desk", "EngineConformance"]


class EngineConformance(EnqueueRules, ClaimRules, SettleRules, LeaseRules, ReachRules):
    """Every rule that an engine obeys, a test each."""
