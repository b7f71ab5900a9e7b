"""The results as a table: each figure with its spread, its bound, and whether it holds."""

import statistics
from collections.abc import Callable, Mapping

from .api_report import API
from .event_report import EVENTS
from .neighbours import ATTACKS
from .postgres.report import (
    POSTGRES,
    POSTGRES_EVENT_TABLES,
    POSTGRES_EVENTS,
    POSTGRES_LARGE,
    POSTGRES_STEADY,
)

Round = dict[str, float]


Row = tuple[str, Callable[[Round], float], str, Callable[[float], bool] | None]
"""What it is, its value in a round, its bound, and whether a value is within it."""


def _figure(name: str) -> Callable[[Round], float]:
    return lambda figures: figures[name]


SMALL: list[Row] = [
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

BROKERS = ("dramatiq", "taskiq", "huey_redis", "celery")


def _best_broker(figures: Round) -> float:
    return max(figures[f"{name}_process_per_second"] for name in BROKERS)


WORKER: list[Row] = [
    (
        "no-op async tasks off a backlog, one process /s",
        lambda r: r["worker_backlog_per_second"],
        "≥ 20,000",
        lambda value: value >= 20_000,
    ),
    (
        "… ÷ the best of the four on Valkey, off theirs",
        lambda r: r["worker_backlog_per_second"] / _best_broker(r),
        "≥ 8",
        lambda value: value >= 8,
    ),
    (
        "no-op async tasks, enqueued and run in the same process /s",
        lambda r: r["worker_async_per_second"],
        "",
        None,
    ),
    *(
        (
            f"{name} on Valkey, one worker process /s",
            _figure(f"{name}_process_per_second"),
            "",
            None,
        )
        for name in BROKERS
    ),
    ("… one slot: nothing batched /s", _figure("worker_async_one_slot_per_second"), "", None),
    (
        "no-op thread tasks /s",
        lambda r: r["worker_thread_per_second"],
        "≥ 4,000",
        lambda value: value >= 4_000,
    ),
    (
        "enqueue to start, idle, in process, p50 ms",
        lambda r: r["worker_latency_p50_ms"],
        "≤ 2",
        lambda value: value <= 2,
    ),
    ("… p99 ms", _figure("worker_latency_p99_ms"), "", None),
    (
        "enqueue to start, idle, through the socket, p50 ms",
        lambda r: r["socket_latency_p50_ms"],
        "≤ 5",
        lambda value: value <= 5,
    ),
    ("… p99 ms", _figure("socket_latency_p99_ms"), "", None),
    *(
        (f"{name} on Valkey, idle, p50 ms", _figure(f"{name}_latency_p50_ms"), "", None)
        for name in BROKERS
    ),
    (
        "8 client processes, one by one /s",
        lambda r: r["eight_clients_per_second"],
        "≥ 5,000",
        lambda value: value >= 5_000,
    ),
    (
        "… with uvloop on both sides /s",
        lambda r: r["eight_clients_uvloop_per_second"],
        "≥ 5,000",
        lambda value: value >= 5_000,
    ),
    (
        "limit: bare round trips of 8 processes through a socket /s",
        lambda r: r["bare_round_trips_per_second"],
        "",
        None,
    ),
    (
        "… 8 clients, checked and durable, ÷ that",
        lambda r: r["eight_clients_per_second"] / r["bare_round_trips_per_second"],
        "",
        None,
    ),
    ("1 client process, one by one /s", _figure("one_client_per_second"), "", None),
    *(
        (f"{name} on Valkey, one by one /s", _figure(f"{name}_enqueue_per_second"), "", None)
        for name in BROKERS
    ),
    (
        "idle CPU of the daemon, %",
        lambda r: r["idle_cpu_percent"],
        "< 1",
        lambda value: value < 1,
    ),
]

LARGE: list[Row] = [
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


HISTORY_COST: list[Row] = [
    (
        "enqueue, claim, complete in hundreds /s",
        lambda r: r["work_with_history_per_second"],
        "",
        None,
    ),
    (
        "… ÷ the same without keeping history (median of five pairs)",
        lambda r: r["work_with_history_share"],
        "≥ 0.75",
        lambda value: value >= 0.75,
    ),
    ("… lowest", lambda r: r["work_with_history_share_lowest"], "", None),
    ("… highest", lambda r: r["work_with_history_share_highest"], "", None),
    (
        "claim + settle in hundreds, 100,000 /s",
        lambda r: r["settle_with_history_per_second"],
        "",
        None,
    ),
    (
        "… ÷ the same without keeping history (median of five pairs)",
        lambda r: r["settle_with_history_share"],
        "≥ 0.75",
        lambda value: value >= 0.75,
    ),
    ("… lowest", lambda r: r["settle_with_history_share_lowest"], "", None),
    ("… highest", lambda r: r["settle_with_history_share_highest"], "", None),
    (
        "claims before a lone job of another tenant, behind 100,000",
        lambda r: r["turns_before_another_tenant"],
        "≤ 1",
        lambda value: value <= 1,
    ),
]


def _letters(store: str, replays: int) -> list[Row]:
    def row(text: str, name: str, bound: str = "", below: float | None = None) -> Row:
        holds = None if below is None else (lambda value: value < below)
        return f"{store}: {text}", _figure(f"{store}_{name}"), bound, holds

    return [
        row("claim + complete in hundreds /s", "claims_per_second"),
        row("… with an outage elsewhere ÷ without", "claims_beside_an_outage_share"),
        row("… lowest of five pairs", "claims_beside_an_outage_share_lowest"),
        row("… highest", "claims_beside_an_outage_share_highest"),
        row("jobs enqueued, claimed and dead /s", "deaths_per_second"),
        row("memory of 1,000,000 dead letters, MiB", "dead_letters_memory_mib", "< 95", 95),
        row("groups of 1,000,000, ms", "groups_ms", "< 100", 100),
        row("… of one queue, ms", "groups_by_queue_ms", "< 100", 100),
        row("count up to 10,000, ms", "count_ms", "< 100", 100),
        row("slowest page of 36, ms", "slowest_page_ms", "< 100", 100),
        row("text in the last error, ms", "text_search_ms", "≤ 1,000", 1_000),
        row("plan of a replay, ms", "plan_ms", "< 2,000", 2_000),
        (
            f"{store}: replay of 100,000 by an operation /s",
            _figure(f"{store}_replay_per_second"),
            f"≥ {replays:,}",
            lambda value: value >= replays,
        ),
        row("… memory that it took, MiB", "replay_memory_mib"),
    ]


LETTERS = [*HISTORY_COST, *_letters("journal", 10_000), *_letters("postgres", 4_500)]


PAYLOADS: list[Row] = [
    row
    for store in ("journal", "postgres")
    for row in (
        (
            f"{store}: enqueue, claim, complete /s, payload kept",
            _figure(f"{store}_payload_kept_per_second"),
            "",
            None,
        ),
        ("… payload dropped", _figure(f"{store}_payload_dropped_per_second"), "", None),
        (
            "… what keeping costs, %",
            _figure(f"{store}_payload_cost_percent"),
            "≤ 10",
            lambda value: value <= 10,
        ),
    )
]


REGISTRY: list[Row] = [
    row
    for store in ("journal", "postgres")
    for row in (
        (
            f"{store}: no-op tasks off a backlog /s, registry on",
            _figure(f"{store}_registry_on_per_second"),
            "",
            None,
        ),
        ("… registry off", _figure(f"{store}_registry_off_per_second"), "", None),
        (
            "… what announcing costs, %",
            _figure(f"{store}_registry_cost_percent"),
            "≤ 10",
            lambda value: value <= 10,
        ),
    )
]


NEIGHBOURS: list[Row] = [
    row
    for name in ATTACKS
    for row in (
        (
            f"{name}: jobs /s of the worker that is attacked",
            _figure(f"neighbour_{name}_per_second"),
            "",
            None,
        ),
        (
            "… ÷ beside the same attack on another process",
            _figure(f"neighbour_{name}_per_second_share"),
            "≥ 0.9",
            lambda value: value >= 0.9,
        ),
        (
            "… the same by processor time",
            _figure(f"neighbour_{name}_per_cpu_second_share"),
            "≥ 0.9",
            lambda value: value >= 0.9,
        ),
        (
            "… what the port takes of a core, %",
            _figure(f"neighbour_{name}_port_cpu_percent"),
            "≤ 6",
            lambda value: value <= 6,
        ),
    )
]


def table(result: Mapping[str, object]) -> str:
    """Return the results as Markdown."""
    lines = ["| figure | median | lowest – highest | bound | holds |", "|---|--:|--:|--:|---|"]
    parts = (
        ("rounds", SMALL),
        ("worker_rounds", WORKER),
        ("large_rounds", LARGE),
        ("letters_rounds", LETTERS),
        ("payload_rounds", PAYLOADS),
        ("registry_rounds", REGISTRY),
        ("neighbour_rounds", NEIGHBOURS),
        ("api_rounds", API),
        ("event_rounds", EVENTS),
        ("postgres_rounds", POSTGRES),
        ("postgres_large_rounds", POSTGRES_LARGE),
        ("postgres_steady_rounds", POSTGRES_STEADY),
        ("postgres_event_rounds", POSTGRES_EVENTS),
        ("postgres_event_table_rounds", POSTGRES_EVENT_TABLES),
    )
    for part, rows in parts:
        source = result.get(part)
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
