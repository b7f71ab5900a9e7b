"""A read model in SQLite: pages by path, and what is noted of applied jobs."""

from __future__ import annotations

import pytest

from holdfast.engines.read_models import sqlite_file
from holdfast.engines.read_models.query import Comparison, Condition, RowQuery
from holdfast.engines.read_models.sqlite_file import SqliteFile
from holdfast.model.read_model import ColumnType, ReadModel

TABLE = ReadModel(
    name="things",
    columns={"id": ColumnType.INTEGER, "scope": ColumnType.TEXT, "at": ColumnType.INTEGER},
    key=("id",),
    indexes=(("at", "id"), ("scope", "at", "id")),
)


@pytest.fixture
def file():
    opened = SqliteFile(":memory:", TABLE)
    opened.create()
    yield opened
    opened.close()


def fill(file: SqliteFile, count: int) -> None:
    def change(rows):
        for number in range(count):
            scope = "a" if number % 10 else "b"
            rows.upsert({"id": number, "scope": f"{scope}/{number}", "at": -number})

    file.apply(change, [], [])


def page(scope: str) -> RowQuery:
    within = Condition("scope", Comparison.WITHIN, scope)
    return RowQuery(conditions=(within,), order=("at", "id"), descending=True, limit=3)


def sorts(file: SqliteFile, scope: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a page of a scope is found by sorting all its rows."""
    asked: list[str] = []
    usual = file._fetch

    def fetch(text, values):
        asked.append(text)
        return usual(text, values)

    monkeypatch.setattr(file, "_fetch", fetch)
    rows = file.select(page(scope))
    monkeypatch.undo()
    assert [row["id"] for row in rows] == ([1, 2, 3] if scope == "a" else [0, 10, 20])
    plan = file._connection.execute(f"EXPLAIN QUERY PLAN {asked[-1]}", ["x"] * 3 + [3])
    return any("TEMP B-TREE" in step[3] for step in plan)


def test_a_page_of_a_broad_scope_is_read_in_its_order_and_not_sorted(file, monkeypatch):
    monkeypatch.setattr(sqlite_file, "_MANY_ROWS", 50)
    fill(file, 100)
    assert not sorts(file, "a", monkeypatch)


def test_control_by_the_index_of_scopes_it_is_sorted(file, monkeypatch):
    fill(file, 100)  # below the limit
    assert sorts(file, "a", monkeypatch)


def test_of_a_small_scope_only_its_own_rows_are_read(file, monkeypatch):
    monkeypatch.setattr(sqlite_file, "_MANY_ROWS", 50)
    fill(file, 100)
    monkeypatch.setattr(sqlite_file, "_MANY_ROWS", 50)
    assert sorts(file, "b", monkeypatch)


def test_what_is_undone_is_not_forgotten(file):
    file.apply(lambda rows: None, [("t", "one")], [])
    assert file.applied([("t", "one")]) == {("t", "one")}

    def fails(rows):
        raise RuntimeError

    for change, noted in ((fails, []), (lambda rows: rows.upsert({"id": 1}), [object()])):
        with pytest.raises(Exception):  # noqa: B017,PT011 - whatever undoes the transaction
            file.apply(change, noted, [("t", "one")])
        assert file.applied([("t", "one")]) == {("t", "one")}


def test_only_the_named_jobs_are_forgotten(file):
    file.apply(lambda rows: None, [("t", "one")], [])
    file.apply(lambda rows: None, [], [("t", "never noted")])
    assert file.applied([("t", "one")]) == {("t", "one")}
    file.apply(lambda rows: None, [("t", str(number)) for number in range(500)], [("t", "one")])
    assert file.applied([("t", "one"), ("t", "7")]) == {("t", "7")}
    file.apply(lambda rows: None, [], [("t", str(number)) for number in range(500)])
    assert file.applied([("t", "7")]) == set()
