"""The whole daemon under simulated faults: no seed breaks a promise."""

from __future__ import annotations

import os
from collections import Counter
from typing import get_args

import pytest

from holdfast.engines.protocol import messages
from holdfast.model.actions import AnyAction
from holdfast.model.effects import LOG_NAMES
from holdfast.model.failure import REASONS
from holdfast.testing.simulation import simulate

SEEDS = int(os.environ.get("HOLDFAST_TEST_SEEDS", "160"))
PARTS = 2
FAULTS = {
    "kill_at_a_disk_call",
    "kill_between_turns",
    "power_cut",
    "pause",
    "stop",
    "resize",
    "clock_jump",
    "skew",
    "planned_kill",
    "planned_eio",
    "planned_short",
    "full_disk",
    "slow_disk",
    "slow_network",
    "cut_request",
    "cut_answer",
}
OTHER_VERBS = {messages.DUMP.name, messages.OPERATE.name}
"""Not counted by verb: other suites cover dumps, and each action of ``operate`` counts alone."""
OTHER_REASONS = {"mapping_error", "cpu_limit"}
"""Reasons that only the rules of an application, or a process with a limit, give."""
VERBS = {
    verb.name for verb in vars(messages).values() if isinstance(verb, messages.Verb)
} - OTHER_VERBS | {action.name for action in get_args(AnyAction)}


@pytest.mark.parametrize("share", range(PARTS))
def test_no_seed_breaks_a_promise(share):
    counts: Counter[str] = Counter()
    for seed in range(share, SEEDS, PARTS):
        report = simulate(seed)
        counts.update(report.counts)
    expected = {f"fault.{fault}" for fault in FAULTS}
    expected |= {f"verb.{verb}" for verb in VERBS}
    expected |= {f"log.{name}" for name in LOG_NAMES.values()}
    expected |= {f"reason.{reason}" for reason in REASONS.keys() - OTHER_REASONS}
    expected |= {"owner.snapshot", "refused.stale_token", "client.gave_up"}
    for kind in sorted(expected):
        print(f"{counts[kind]:>8}  {kind}")  # noqa: T201 - shown with -s, or when it fails
    if SEEDS >= 80 * PARTS:  # each part is large enough to have seen everything
        assert not {kind for kind in expected if not counts[kind]}, (
            "the simulation no longer covers everything"
        )
