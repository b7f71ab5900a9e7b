"""The whole daemon in one process, under one seed: storms of faults, and every promise checked.

``simulate(seed)`` runs the production daemon (journal, worker, loops, HTTP), workers in processes
of their own and clients, on a simulated clock, disk and network. Same seed, same trace. From the
command line: ``python -m holdfast.testing.simulation --seed 7 --trace``.
"""

from .run import SimulationReport, simulate
from .trace import BrokenPromise

__all__ = ["BrokenPromise", "SimulationReport", "simulate"]
