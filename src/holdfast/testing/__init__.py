"""Tools of the test suite, also for authors of engines and for tests of tasks.

``clock``        a clock that a test moves
``disk``         a disk that loses, tears and reorders writes, fails and kills
``conformance``  the engine contract as tests
``machine``      a state machine that compares an engine with the oracle (``comparison``: how)
``loop``         an event loop in virtual time
``projection``   what a projection makes of events
``app``          tasks of an application in virtual time: ``Holdfast.testing()``
``simulation``   the whole daemon, workers and clients with faults drawn from a seed
"""

from .clock import VirtualClock
from .disk import Fault, SimDisk, SimKilled
from .loop import VirtualLoop

__all__ = ["Fault", "SimDisk", "SimKilled", "VirtualClock", "VirtualLoop"]
