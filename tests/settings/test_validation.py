"""What makes no sense together, what is only doubtful, and places that cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import InvalidInput
from holdfast.settings import Settings, load, unusable_paths

CLASHES = [
    ({"base_backoff_seconds": 60, "max_backoff_seconds": 30}, "base_backoff_seconds"),
    ({"base_backoff_seconds": 901}, "base_backoff_seconds"),
    ({"lease_seconds": 61, "max_processing_seconds": 60}, "lease_seconds"),
    ({"task_timeout_seconds": "11m", "max_processing_seconds": "10m"}, "task_timeout_seconds"),
]


@pytest.mark.parametrize(("said", "blamed"), CLASHES)
def test_what_cannot_be_meant_together_is_refused(said: dict[str, Any], blamed: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Settings(**said)
    assert refused.value.field == blamed
    with pytest.raises(InvalidInput) as refused:
        load(environ={}, flags=said)
    assert refused.value.field == blamed
    assert " is more than max_" in refused.value.problem
    assert refused.value.problem.endswith(f"(flag --{blamed.replace('_', '-')})")


@pytest.mark.parametrize(
    "said",
    [
        {"max_backoff_seconds": 0.5},
        {"max_backoff_seconds": 0, "base_backoff_seconds": 0},
        {"base_backoff_seconds": 300},
        {"max_processing_seconds": 5},
        {"lease_seconds": 601},
        {"task_timeout_seconds": "11m"},
        {"lease_seconds": 3_600, "max_processing_seconds": "1h"},
        {"drain_seconds": "1d", "lease_seconds": 1},
        {"poll_interval_seconds": "1h", "batch_size": 10_000},
    ],
)
def test_a_default_gives_way_and_what_works_is_taken(said: dict[str, Any]) -> None:
    loaded = load(environ={}, flags=said)
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("said", "timeout_seconds"),
    [
        ({}, 600),
        ({"max_processing_seconds": 600}, 540),
        ({"max_processing_seconds": 2}, 1.8),
        ({"max_processing_seconds": "1h"}, 600),
        ({"max_processing_seconds": 60, "task_timeout_seconds": 60}, 60),
        ({"task_timeout": "3s", "max_retry": 3}, 3),
    ],
)
def test_a_timeout_that_is_not_set_leaves_room_below_a_cap_that_is(
    said: dict[str, Any], timeout_seconds: float
) -> None:
    settings = load(environ={}, flags=said).settings
    assert settings.task_timeout_seconds == pytest.approx(timeout_seconds)


def test_the_defaults_are_safe_for_production() -> None:
    settings = Settings()
    assert settings.task_timeout_seconds == 600
    assert settings.max_processing_seconds is None
    assert (settings.max_attempts, settings.backoff_jitter) == (20, 0.5)
    assert (settings.base_backoff_seconds, settings.max_backoff_seconds) == (2, 900)


@pytest.mark.parametrize(
    ("said", "warning"),
    [
        ({"worker_count": 4, "queues": "mail:8"}, "worker_count: 4 has no effect"),
        ({"metrics_port": "off", "metrics_host": "::1"}, "metrics_host: ::1 has no effect"),
        ({"metrics_host": "0.0.0.0"}, "metrics_host: 0.0.0.0 is reachable"),  # noqa: S104
        (
            {"metrics_host": "192.0.2.1", "metrics_token_file": "token"},
            "metrics_host: 192.0.2.1 is reachable from other machines, and the token",
        ),
        ({"metrics_key_file": "key"}, "metrics_key_file: it has no effect"),
    ],
)
def test_what_is_only_doubtful_is_a_warning(said: dict[str, Any], warning: str) -> None:
    loaded = load(environ={}, flags=said)
    assert len(loaded.warnings) == 1
    assert loaded.warnings[0].startswith(warning)


def test_negative_control_what_is_meant_is_no_warning() -> None:
    kept = {"metrics_token_file": "token", "metrics_cert_file": "cert"}
    for said in (
        {"worker_count": 4, "queues": "mail:8,slow"},
        {"metrics_port": "off"},
        {"metrics_host": "127.0.0.7"},
        {"metrics_host": "::", **kept},
    ):
        assert load(environ={}, flags=said).warnings == ()


# --- places -----------------------------------------------------------------------------------


def problems_of(**flags: object) -> list[tuple[str, str]]:
    loaded = load(environ={}, flags=flags)
    return [(problem.field, problem.problem) for problem in unusable_paths(loaded)]


def test_places_that_can_be_made_are_well_and_are_not_made() -> None:
    assert problems_of() == []
    assert problems_of(store="a/b/c", snapshot_path="x/y/s.json") == []
    assert problems_of(store="memory:") == []
    assert list(Path().iterdir()) == []


def test_a_place_with_a_file_in_its_way_is_named() -> None:
    Path("file").write_text("")
    found = problems_of(store="file/data", snapshot_path="./ssd/s.json")
    here = Path("file").absolute()
    assert found == [
        ("store", f"'file/data' cannot be used: {here} is not a directory (flag --store)")
    ]
    found = problems_of(snapshot_path="file/s.json")
    assert [field for field, _problem in found] == ["snapshot_path"]
    assert found[0][1].endswith("is not a directory (flag --snapshot-path)")


def test_a_place_whose_name_no_system_takes_is_named() -> None:
    found = problems_of(store="x" * 300)
    assert [field for field, _problem in found] == ["store", "snapshot_path"]
    assert "File name too long" in found[0][1]


def test_a_place_that_this_user_may_not_write_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The one who runs tests may be allowed everything: the system's answer is made up.
    monkeypatch.setattr("os.access", lambda path, _mode: Path(path) == Path().absolute())
    assert problems_of() == []
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    assert "this user may not write in" in problems_of()[0][1]
