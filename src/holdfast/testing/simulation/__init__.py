"""Deterministic simulation: the whole daemon in one process, faults drawn from a seed.

``simulate(seed)`` runs the production daemon (journal, worker, loops, HTTP), remote workers and
clients on a simulated clock, disk and network, and checks every promise. Same seed, same trace.
From the command line: ``python -m holdfast.testing.simulation --seed 7 --trace``.
"""

from .run import SimulationReport, simulate
from .trace import BrokenPromise

__all__ = ["BrokenPromise", "SimulationReport", "simulate"]
