"""The rows of the HTTP API."""

from collections.abc import Callable
from functools import partial
from operator import le

Round = dict[str, float]
Row = tuple[str, Callable[[Round], float], str, Callable[[float], bool] | None]


def _figure(name: str) -> Callable[[Round], float]:
    return lambda figures: figures[name]


def _ratio(name: str, to: str) -> Callable[[Round], float]:
    return lambda figures: figures[name] / figures[to]


API: list[Row] = [
    row
    for connections, bound in ((1, 500), (8, 1_500))
    for row in (
        (
            f"POST /v2/jobs /s, {connections} connections, key checked, synced",
            _figure(f"api_enqueue_{connections}_per_second"),
            f"≥ {bound:,}",
            partial(le, bound),
        ),
        (
            "… ÷ the bare front",
            _ratio(f"api_enqueue_{connections}_per_second", f"api_front_{connections}_per_second"),
            "",
            None,
        ),
    )
]
API += [
    (
        f"jobs /s by {name} of 1,000, one connection",
        _figure(f"api_{name}_jobs_per_second"),
        "≥ 15,000",
        partial(le, 15_000),
    )
    for name in ("batch", "ingest")
]
API += [
    (
        "idle streams open, of 500 over 25 keys",
        _figure("api_streams_open"),
        "500",
        partial(le, 500),
    ),
    ("… what they take of a core, %", _figure("api_streams_cpu_percent"), "", None),
    (
        "no-op tasks /s of a worker whose API is flooded",
        _figure("api_worker_flooded_per_second"),
        "",
        None,
    ),
    (
        "… ÷ beside the same flood on another process",
        _ratio("api_worker_flooded_per_second", "api_worker_beside_a_flood_per_second"),
        "≥ 0.9",
        partial(le, 0.9),
    ),
]
