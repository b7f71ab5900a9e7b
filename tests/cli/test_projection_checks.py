"""What ``holdfast doctor`` says of a projection."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from holdfast.cli.projection_checks import check_projection
from holdfast.operations.projection_views import ProjectionView, RebuildView

WELL = ProjectionView(
    name="titles",
    state="live",
    generation=2,
    version=1,
    queue="titles.g2",
    lag_events=0,
    lag_seconds=0.0,
    held=0,
    held_keys=0,
    failed=0,
    slo_met=True,
    declared_version=1,
    lag_slo_seconds=60.0,
)
PAST = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = RebuildView("rb-1", "generation", "failed", 3, "ops", PAST, 1.0, 4, 9, error="no title")


def test_nothing_is_said_of_one_that_is_well():
    assert check_projection(WELL) == []


@pytest.mark.parametrize(
    ("change", "verdict", "said", "advice"),
    [
        ({"rebuild": FAILED}, "wrong", "rb-1 stopped at no title", "--resume"),
        ({"incomplete": True}, "wrong", "events are missing", "`holdfast rebuild titles`"),
        (
            {"slo_met": False, "lag_seconds": 90.0, "lag_events": 3},
            "warning",
            "is 1m30s behind with 3 events: its limit is 1m",
            "must serve titles.g2",
        ),
        ({"declared_version": 2}, "warning", "declared as version 2", "`holdfast rebuild titles`"),
        (
            {"previous_generation": 1, "previous_until": PAST},
            "warning",
            "generation 1, which is past its time",
            "holdfast run",
        ),
    ],
)
def test_each_problem_is_named_with_what_to_do(change, verdict, said, advice):
    [found] = check_projection(replace(WELL, **change))
    assert found.verdict == verdict
    assert said in found.said
    assert advice in found.advice
