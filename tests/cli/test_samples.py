"""What commands show of samples: rates, ages, series and small pictures."""

from __future__ import annotations

import asyncio
import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.cli.commands import top
from holdfast.cli.sparkline import short_age, short_number, sparkline
from holdfast.cli.top_screen import head, live_screen, notices
from holdfast.engines.journal.samples.store import SqliteSamples
from holdfast.model.samples import QueueDepth, QueueFlow, QueueSample
from holdfast.settings import Settings

from .conftest import invoke


def furnish(path: Path, minutes: int, *, seconds_ago: float = 5.0) -> None:
    """Write samples of the queue mail, as a daemon would have taken them: one per minute."""

    async def write() -> None:
        store = SqliteSamples(str(path / "samples.sqlite"))
        last_us = int((time.time() - seconds_ago) * 1e6)
        for minute in reversed(range(minutes)):
            sample = QueueSample(
                QueueDepth(pending=minute, in_flight=1, dead=5, oldest_age_seconds=90.0),
                QueueFlow(enqueued=120, completed=60, retried=6, died=3),
                60.0,
            )
            await store.add(last_us - minute * 60_000_000, {"mail": sample})
        await store.close()

    asyncio.run(write())


@pytest.fixture
def sampled(closed_shop):
    furnish(closed_shop.path, 30)
    return closed_shop


# --- series ------------------------------------------------------------------------------------


def test_a_series_has_the_points_of_a_queue(sampled):
    found = sampled.json("queues", "series", "mail")
    assert [point["pending"] for point in found] == list(range(29, -1, -1))
    assert found[0]["rates"] == {
        "enqueued_per_second": 2.0,
        "completed_per_second": 1.0,
        "retried_per_second": 0.1,
        "dead_per_second": 0.05,
    }
    assert found[0]["oldest_age_seconds"] == 90.0
    lines = sampled.run("queues", "series", "mail", "--ndjson").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found
    recent = sampled.json("queues", "series", "mail", "--since", "5m30s")
    assert 4 <= len(recent) <= 6
    assert recent == found[-len(recent) :]
    wide = sampled.json("queues", "series", "mail", "--since", "1h", "--step", "1h")
    assert max(point["pending"] for point in wide) == 29


def test_a_series_for_people_is_a_table(sampled):
    lines = sampled.run("queues", "series", "mail", "--since", "10m").stdout.splitlines()
    assert lines[0].split()[:3] == ["AT", "PENDING", "BLOCKED"]
    assert lines[-1].split()[2:] == ["0", "0", "1", "5", "0", "1m", "2", "1", "0.10", "0.05"]


def test_a_queue_without_samples_is_said_to_have_none(sampled):
    result = sampled.run("queues", "series", "slow")
    assert result.stdout == ""
    assert "no samples of 'slow' since 1h: a daemon takes them while it runs" in result.stderr
    assert sampled.json("queues", "series", "slow") == []


@pytest.mark.parametrize(
    "arguments",
    [("mail", "--since", "soon"), ("mail", "--since", "0s"), ("mail", "--step", "-3s"), ("",)],
)
def test_bad_questions_are_refused_in_a_sentence(sampled, arguments):
    result = invoke("queues", "series", *arguments, "--store", str(sampled.path))
    assert result.exit_code == 2
    assert "Traceback" not in result.output


# --- list and status ---------------------------------------------------------------------------


def test_rates_and_ages_are_in_the_json_of_list_and_status(sampled):
    for found in (sampled.json("queues", "list"), sampled.json("status")["queues"]):
        mail = next(one for one in found if one["queue"] == "mail")
        assert mail["rates"]["enqueued_per_second"] == 2.0
        assert (mail["held"], mail["oldest_age_seconds"]) == (0, 90.0)
        assert mail["sampled_at"]
        slow = next(one for one in found if one["queue"] == "slow")
        assert (slow["rates"], slow["oldest_age_seconds"], slow["sampled_at"]) == (None, None, None)


def test_an_old_sample_says_nothing_about_now(closed_shop):
    furnish(closed_shop.path, 10, seconds_ago=900)
    mail = next(one for one in closed_shop.json("queues", "list") if one["queue"] == "mail")
    assert mail["rates"] is None


# --- top ---------------------------------------------------------------------------------------


def test_top_has_rates_and_a_trend(sampled):
    found = sampled.json("top", "--once")
    mail = next(one for one in found["queues"] if one["queue"] == "mail")
    assert mail["rates"]["completed_per_second"] == 1.0
    assert len(mail["trend"]) == 30
    assert mail["trend"][-2:] in ([2, 1], [1, 1])  # a minute may have just begun
    assert found["rates_per_second"]["enqueued"] == 2.0
    text = sampled.run("top", "--once").stdout
    assert "LAST 30 MIN" in text
    assert "█" in text


@pytest.mark.parametrize("width", [80, 100, 112, 160])
def test_the_screen_fits_the_terminal(sampled, width):
    settings = Settings(store=str(sampled.path))
    found = top._sample(settings, None)
    out = io.StringIO()
    Console(file=out, width=width).print(live_screen(settings, found, width))
    lines = out.getvalue().splitlines()
    table = [line for line in lines if line.startswith(("QUEUE", "mail", "slow"))]
    assert max(map(len, table)) <= width
    assert "…" not in "".join(table)
    assert ("RETRY/S" in table[0]) is (width >= 112)
    assert "LAST 30 MIN" in table[0]


def test_paused_and_unserved_queues_are_said_first(sampled):
    sampled.run("queues", "pause", "slow", "--by", "ann", "--reason", "too loud")
    found = top._sample(Settings(store=str(sampled.path)), None)
    assert head(found) == "no daemon is running"
    assert notices(found) == ["paused: slow"]
    assert "slow ‖" in sampled.run("top", "--once").stdout


# --- small pictures ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([], 10, ""),
        ([0, 0, 0], 10, "▁▁▁"),
        ([0, 1, 1000], 10, "▁▂█"),
        ([1, 2, 3, 4, 5, 6, 7], 7, "▂▃▄▅▆▇█"),
        ([0, 9, 0, 0, 0, 0], 3, "█▁▁"),
        ([5], 0, ""),
    ],
)
def test_a_sparkline_loses_no_peak(values, width, drawn):
    assert sparkline(values, width) == drawn


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (17, "17"),
        (17.62, "17.6"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (1_250, "1.2k"),
        (350_000, "350k"),
        (4_100_000, "4.1M"),
    ],
)
def test_numbers_are_short(value, text):
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.4, "0s"), (59.9, "59s"), (60, "1m"), (7_199, "1h"), (200_000, "2d")],
)
def test_ages_have_one_unit(seconds, text):
    assert short_age(seconds) == text
