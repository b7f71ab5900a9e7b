"""The results as a table: each figure with its spread, its bound, and whether it holds."""

import statistics
from collections.abc import Callable, Mapping

Round = dict[str, float]

SMALL: list[tuple[str, Callable[[Round], float], str, Callable[[float], bool] | None]] = [
    ("limit: append + fdatasync /s", lambda r: r["fdatasync_per_second"], "", None),
    (
        "limit: preallocated fdatasync /s",
        lambda r: r["preallocated_fdatasync_per_second"],
        "",
        None,
    ),
    ("limit: msgspec + CRC /s", lambda r: r["encode_and_crc_per_second"], "", None),
    ("one-by-one enqueue p50, µs", lambda r: r["enqueue_p50_us"], "", None),
    ("one-by-one enqueue p99, µs", lambda r: r["enqueue_p99_us"], "", None),
    (
        "… p50 ÷ one fdatasync",
        lambda r: r["enqueue_p50_us"] / r["fdatasync_p50_us"],
        "≤ 2",
        lambda value: value <= 2,
    ),
    ("100 producers /s", lambda r: r["enqueue_100_producers_per_second"], "", None),
    (
        "… ÷ fdatasync rate",
        lambda r: r["enqueue_100_producers_per_second"] / r["fdatasync_per_second"],
        "≥ 12",
        lambda value: value >= 12,
    ),
    (
        "bulk enqueue /s",
        lambda r: r["enqueue_bulk_per_second"],
        "≥ 120,000",
        lambda value: value >= 120_000,
    ),
    (
        "… ÷ handwritten SQLite queue",
        lambda r: r["enqueue_bulk_per_second"] / r["sqlite_enqueue_bulk_per_second"],
        "≥ 1",
        lambda value: value >= 1,
    ),
    (
        "… ÷ huey",
        lambda r: r["enqueue_bulk_per_second"] / r["huey_enqueue_per_second"],
        "≥ 5",
        lambda value: value >= 5,
    ),
    (
        "claim + settle in hundreds /s",
        lambda r: r["claim_and_settle_per_second"],
        "≥ 60,000",
        lambda value: value >= 60_000,
    ),
    (
        "… ÷ handwritten SQLite queue",
        lambda r: r["claim_and_settle_per_second"] / r["sqlite_claim_and_settle_per_second"],
        "≥ 1",
        lambda value: value >= 1,
    ),
    (
        "… ÷ huey",
        lambda r: r["claim_and_settle_per_second"] / r["huey_process_per_second"],
        "≥ 5",
        lambda value: value >= 5,
    ),
    (
        "one-by-one enqueue ÷ handwritten SQLite queue",
        lambda r: r["enqueue_one_by_one_per_second"] / r["sqlite_enqueue_one_by_one_per_second"],
        "",
        None,
    ),
    (
        "one-by-one enqueue ÷ huey",
        lambda r: r["enqueue_one_by_one_per_second"] / r["huey_enqueue_per_second"],
        "",
        None,
    ),
]

LARGE: list[tuple[str, Callable[[Round], float], str, Callable[[float], bool] | None]] = [
    ("claim + settle, few pending /s", lambda r: r["process_with_few_per_second"], "", None),
    (
        "claim + settle, 1,000,000 pending ÷ few",
        lambda r: r["process_with_many_per_second"] / r["process_with_few_per_second"],
        "≥ 0.7",
        lambda value: value >= 0.7,
    ),
    (
        "recovery of 1,000,000 from the log, s",
        lambda r: r["recovery_from_log_seconds"],
        "≤ 5",
        lambda value: value <= 5,
    ),
    (
        "recovery of 1,000,000 from a snapshot, s",
        lambda r: r["recovery_from_snapshot_seconds"],
        "≤ 5",
        lambda value: value <= 5,
    ),
    (
        "memory of a pending job beside its payload, bytes",
        lambda r: r["memory_bytes_per_job"],
        "≤ 700",
        lambda value: value <= 700,
    ),
    ("compaction of 1,000,000, s", lambda r: r["compaction_seconds"], "", None),
    (
        "longest stall of the loop while compacting, ms",
        lambda r: r["loop_stall_ms_while_compacting"],
        "≤ 50",
        lambda value: value <= 50,
    ),
    ("longest stall without, ms", lambda r: r["loop_stall_ms_without"], "", None),
]


def table(result: Mapping[str, object]) -> str:
    """Return the results as Markdown."""
    lines = ["| figure | median | lowest – highest | bound | holds |", "|---|--:|--:|--:|---|"]
    for source, rows in ((result["rounds"], SMALL), (result["large_rounds"], LARGE)):
        if not isinstance(source, list) or not source:
            continue
        for name, figure, bound, holds in rows:
            values = sorted(figure(one) for one in source)
            middle = statistics.median(values)
            verdict = "" if holds is None else "yes" if holds(middle) else "**no**"
            lines.append(
                f"| {name} | {_number(middle)} | {_number(values[0])} – {_number(values[-1])} "
                f"| {bound} | {verdict} |"
            )
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
