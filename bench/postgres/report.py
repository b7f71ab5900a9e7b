"""The figures of the PostgreSQL engine, as rows of the table."""

from collections.abc import Callable

Round = dict[str, float]
Row = tuple[str, Callable[[Round], float], str, Callable[[float], bool] | None]

PEERS = ("pgqueuer", "procrastinate")


def _figure(name: str, what: str) -> Row:
    return what, lambda found: found[name], "", None


def _value(name: str) -> Callable[[Round], float]:
    return lambda found: found[name]


def _at_least(bound: float, what: str, figure: Callable[[Round], float]) -> Row:
    return what, figure, f"≥ {bound:g}", lambda value: value >= bound


def _at_most(bound: float, what: str, figure: Callable[[Round], float]) -> Row:
    return what, figure, f"≤ {bound:g}", lambda value: value <= bound


def _ratio(over: str, under: str) -> Callable[[Round], float]:
    return lambda found: found[over] / found[under]


def _best(figure: str) -> Callable[[Round], float]:
    return lambda found: max(found[f"{peer}_{figure}"] for peer in PEERS)


def _to_best(figure: str) -> Callable[[Round], float]:
    return lambda found: found[f"holdfast_{figure}"] / _best(figure)(found)


def _latency_to_best(found: Round) -> float:
    return found["holdfast_latency_p50_ms"] / min(found[f"{one}_latency_p50_ms"] for one in PEERS)


POSTGRES: list[Row] = [
    _figure("bare_per_second", "limit: complete and claim, bare statements of 500 /s"),
    _figure("engine_per_second", "the engine's claim + settle in 500s /s"),
    ("… ÷ bare", _ratio("engine_per_second", "bare_per_second"), "", None),
    _figure("holdfast_process_per_second", "no-op tasks off a backlog, one worker process /s"),
    _at_least(0.5, "… ÷ bare", _ratio("holdfast_process_per_second", "bare_per_second")),
    _at_least(
        2,
        "… ÷ pgqueuer",
        _ratio("holdfast_process_per_second", "pgqueuer_process_per_second"),
    ),
    _at_least(
        30,
        "… ÷ procrastinate",
        _ratio("holdfast_process_per_second", "procrastinate_process_per_second"),
    ),
    _figure("holdfast_uvloop_process_per_second", "… with uvloop /s"),
    *(_figure(f"{peer}_process_per_second", f"{peer}, one worker process /s") for peer in PEERS),
    _figure("bare_server_us", "processor time a job, bare statements: server, µs"),
    _figure("bare_client_us", "… client, µs"),
    _figure("engine_server_us", "… the engine: server, µs"),
    _figure("engine_client_us", "… client, µs"),
    _figure("holdfast_server_us", "… our worker: server, µs"),
    _figure("holdfast_worker_us", "… worker, µs"),
    *(
        _figure(f"{peer}_{part}_us", f"… {peer}: {part}, µs")
        for peer in PEERS
        for part in ("server", "worker")
    ),
    (
        "two worker processes ÷ one",
        _ratio("holdfast_process_2_per_second", "holdfast_process_per_second"),
        "",
        None,
    ),
    _figure("holdfast_server_2_cores", "… cores that the server uses"),
    (
        "four worker processes ÷ one",
        _ratio("holdfast_process_4_per_second", "holdfast_process_per_second"),
        "",
        None,
    ),
    _figure("holdfast_server_4_cores", "… cores that the server uses"),
    _figure("bare_bulk_per_second", "limit: bulk, the bare statement of 1,000 /s"),
    _figure("bare_bulk_server_us", "… processor time a job, server, µs"),
    (
        "… ÷ the better peer",
        lambda found: found["bare_bulk_per_second"] / _best("bulk_per_second")(found),
        "",
        None,
    ),
    _figure("holdfast_bulk_per_second", "bulk enqueue, 1,000 a call /s"),
    _at_least(3, "… ÷ the better peer", _to_best("bulk_per_second")),
    *(_figure(f"{peer}_bulk_per_second", f"{peer}, bulk /s") for peer in PEERS),
    *(
        _figure(f"{name}_bulk_{part}_us", f"processor time a job, bulk, {name}: {part}, µs")
        for name in ("holdfast", *PEERS)
        for part in ("server", "client")
    ),
    _figure("holdfast_enqueue_per_second", "one-by-one enqueue /s"),
    _at_least(1, "… ÷ the better peer", _to_best("enqueue_per_second")),
    *(_figure(f"{peer}_enqueue_per_second", f"{peer}, one by one /s") for peer in PEERS),
    _figure("holdfast_latency_p50_ms", "enqueue to start, idle, p50 ms"),
    _at_most(1, "… ÷ the better peer", _latency_to_best),
    _figure("holdfast_latency_p99_ms", "… p99 ms"),
    *(_figure(f"{peer}_latency_p50_ms", f"{peer}, idle, p50 ms") for peer in PEERS),
    *(_figure(f"{peer}_latency_p99_ms", f"{peer}, idle, p99 ms") for peer in PEERS),
]

POSTGRES_LARGE: list[Row] = [
    _figure("few_per_second", "no-op tasks, 10,000 waiting /s"),
    _figure("many_per_second", "… 1,000,000 waiting /s"),
    _at_least(0.8, "… ÷ 10,000 waiting", _ratio("many_per_second", "few_per_second")),
    _figure("fill_many_seconds", "filling 1,000,000, s"),
]

POSTGRES_STEADY: list[Row] = [
    _figure("steady_seconds", "even load, 10,000 waiting: for s"),
    _figure("steady_per_second", "… enqueued and run /s"),
    _figure("dead_rows_most", "… most dead rows"),
    _figure("dead_rows_last", "… dead rows at the end"),
    _figure("vacuums", "… times that the server swept"),
    _figure("table_mib_third", "… jobs and their indexes after a third, MiB"),
    _figure("table_mib_last", "… at the end, MiB"),
    _at_most(1.5, "… end ÷ third (for 600 s)", _ratio("table_mib_last", "table_mib_third")),
    _figure("pinned_seconds", "then an old transaction in the way: for s"),
    _figure("pinned_per_second", "… enqueued and run in its last 10 s /s"),
    _at_least(0.6, "… ÷ without", _ratio("pinned_per_second", "steady_per_second")),
    _figure("dead_rows_pinned", "… dead rows at its end"),
    _figure("table_mib_pinned", "… jobs and their indexes, MiB"),
]


def _events(name: str, what: str, limit: str) -> list[Row]:
    return [
        _figure(f"{name}_per_second", f"{what} /s"),
        ("… ÷ plain", _ratio(f"{name}_per_second", f"{limit}_per_second"), "", None),
        _figure(f"{name}_server_us", "… processor time an event: server, µs"),
        _figure(f"{name}_client_us", "… client, µs"),
    ]


def _bounded(rows: list[Row], bound: float) -> list[Row]:
    """Give the first of these rows a lower bound."""
    (what, figure, _bound, _holds), *others = rows
    return [_at_least(bound, what, figure), *others]


POSTGRES_EVENTS: list[Row] = [
    _figure("plain_append_per_second", "limit: append 1,000 a commit, plain psycopg /s"),
    _figure("plain_append_server_us", "… processor time an event: server, µs"),
    _figure("plain_append_client_us", "… client, µs"),
    *_bounded(
        _events(
            "books_append", "append 1,000 a call, one subscription, 1,000 keys", "plain_append"
        ),
        10_000,
    ),
    *_bounded(_events("hot_key_append", "… one key", "plain_append"), 10_000),
    _figure("plain_project_per_second", "limit: project 500 a commit, plain psycopg /s"),
    _figure("plain_project_server_us", "… processor time an event: server, µs"),
    _figure("plain_project_client_us", "… client, µs"),
    *_bounded(
        _events(
            "books_project", "projected by one worker, plain table, 1,000 keys", "plain_project"
        ),
        8_000,
    ),
    *_bounded(_events("hot_key_project", "… one key", "plain_project"), 8_000),
    *_events("chronicle_project", "… the chronicle, 1,000 keys", "plain_project"),
]

POSTGRES_EVENT_TABLES: list[Row] = [
    _at_most(300, f"rebuild of {what}, 1,000,000 events, s", _value(f"rebuild_{name}_seconds"))
    for name, what in (("books", "a plain table"), ("chronicle", "the chronicle"))
] + [
    _figure(f"rebuild_{name}_{part}_us", f"… {name}, processor time an event: {part}, µs")
    for name in ("books", "chronicle")
    for part in ("server", "client")
]
POSTGRES_EVENT_TABLES += [
    _at_most(50, f"{what}, 1,000,000 entries, ms", _value(f"chronicle_{name}_ms"))
    for name, what in (
        ("page", "a page of the chronicle"),
        ("entity_page", "… of one entity"),
        ("search", "search for two characters, 1 % of the entries"),
        ("rare_search", "… 0.01 %"),
    )
]
