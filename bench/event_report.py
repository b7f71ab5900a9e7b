"""The rows of the table that are about events on the journal."""

from collections.abc import Callable

Round = dict[str, float]
Row = tuple[str, Callable[[Round], float], str, Callable[[float], bool] | None]


def _figure(name: str) -> Callable[[Round], float]:
    return lambda figures: figures[name]


def _share(name: str) -> Callable[[Round], float]:
    return lambda figures: figures[name] / figures[f"plain_{name}"]


def _flow(title: str, name: str, least: int) -> list[Row]:
    """Return the rows of one flow, and of the plain program beside it."""
    return [
        (
            f"{title} /s",
            _figure(f"{name}_per_second"),
            f"≥ {least:,}",
            lambda value: value >= least,
        ),
        ("… the plain program /s", _figure(f"plain_{name}_per_second"), "", None),
        ("… processor time of an event, µs", _figure(f"{name}_cpu_us"), "", None),
        ("… of that on the event loop, µs", _figure(f"{name}_loop_us"), "", None),
        ("… ÷ that of the plain program", _share(f"{name}_cpu_us"), "", None),
    ]


def _at_most(title: str, name: str, most: int) -> Row:
    return title, _figure(name), f"≤ {most}", lambda value: value <= most


EVENTS: list[Row] = [
    *_flow("append in bulk, one subscription", "append", 20_000),
    ("… until events.sqlite has them /s", _figure("append_and_store_per_second"), "", None),
    ("… processor time with that, µs", _figure("append_and_store_cpu_us"), "", None),
    *_flow("project to a table, 10,000 keys", "project_books", 10_000),
    *_flow("… half of it one hot key", "project_books_hot", 10_000),
    *_flow("project to the chronicle, 10,000 keys", "project_chronicle", 6_000),
    *_flow("… half of it one hot key", "project_chronicle_hot", 6_000),
    ("rebuild of the table, µs of processor time", _figure("rebuild_books_cpu_us"), "", None),
    ("rebuild of the chronicle, the same", _figure("rebuild_chronicle_cpu_us"), "", None),
    _at_most("rebuild of the table, s", "rebuild_books_seconds", 120),
    _at_most("rebuild of the chronicle, s", "rebuild_chronicle_seconds", 120),
    _at_most("page of the chronicle, ms", "chronicle_page_ms", 50),
    _at_most("… of a scope, ms", "chronicle_page_of_scope_ms", 50),
    _at_most("… of an entity, ms", "chronicle_page_of_entity_ms", 50),
    _at_most("search of a word in 0.5 % of the entries, ms", "chronicle_search_ms", 50),
    _at_most("… in a scope, ms", "chronicle_search_in_scope_ms", 50),
]
