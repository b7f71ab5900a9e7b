"""The PostgreSQL engine beside what people run on PostgreSQL today: one durable server for all."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.brokers import group

from . import server, side

SIDES: Mapping[str, str] = {
    "holdfast": "holdfast_side",
    "pgqueuer": "pgqueuer_side",
    "procrastinate": "procrastinate_side",
}
PIN_SECONDS = 60.0
START_SECONDS = 120.0


def measure(on: server.Durable, seconds: float) -> dict[str, float]:
    """Measure one round: what the server does at best, ours, and the peers."""
    with on.with_our_tables() as url:
        found = _told("bare", url, seconds, patience=20 * seconds)
    for name, module in SIDES.items():
        place = on.with_our_tables() if name == "holdfast" else on.empty()
        with place as url:
            told = _told("driver", url, module, seconds, patience=60 * seconds)
        found |= {f"{name}_{figure}": value for figure, value in told.items()}
    return found


def measure_large(on: server.Durable, seconds: float, backlog: int) -> dict[str, float]:
    """Measure with few and with many jobs waiting."""
    with on.with_our_tables() as url:
        return _told("backlog", url, seconds, backlog, patience=20 * seconds + backlog / 500)


def measure_steady(on: server.Durable, seconds: float, pin_seconds: float) -> dict[str, float]:
    """Measure for a while under even load, then with an old transaction in the way."""
    with on.with_our_tables() as url:
        return _told("steady", url, seconds, pin_seconds, patience=2 * (seconds + pin_seconds))


def measure_events(on: server.Durable, count: int) -> dict[str, float]:
    """Measure appending and projecting so many events."""
    with on.with_our_tables() as url:
        return _told("events", url, count, patience=count / 50)


def measure_event_tables(on: server.Durable, count: int) -> dict[str, float]:
    """Measure rebuilding from so many events, and reading what was built."""
    with on.with_our_tables() as url:
        return _told("event_tables", url, count, patience=count / 400)


def _told(module: str, url: str, *arguments: object, patience: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-", ignore_cleanup_errors=True) as place:
        return group.run_module(
            f"{__name__}.{module}",
            [str(argument) for argument in arguments],
            Path(place),
            START_SECONDS + patience,
            {side.URL: url, "HOLDFAST_STORE": url},
        )
