"""What our own suites use, and what anybody needs who writes an engine.

``clock``        a clock that moves when it is told to
``disk``         a disk that loses, tears, reorders, fails and kills
``conformance``  the engine contract as tests
``machine``      a state machine that compares an engine with the oracle
"""

from .clock import VirtualClock
from .disk import Fault, SimDisk, SimKilled

__all__ = ["Fault", "SimDisk", "SimKilled", "VirtualClock"]
