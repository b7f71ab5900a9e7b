"""What our own suites use, and what anybody needs who writes an engine or tests tasks.

``clock``        a clock that moves when it is told to
``disk``         a disk that loses, tears, reorders, fails and kills
``conformance``  the engine contract as tests
``machine``      a state machine that compares an engine with the oracle (``comparing``: how)
``loop``         an event loop in virtual time
``app``          an application's tasks in virtual time: ``Holdfast.testing()``
``simulation``   the whole daemon, workers and clients in storms of faults, by a seed
"""

from .clock import VirtualClock
from .disk import Fault, SimDisk, SimKilled
from .loop import VirtualLoop

__all__ = ["Fault", "SimDisk", "SimKilled", "VirtualClock", "VirtualLoop"]
