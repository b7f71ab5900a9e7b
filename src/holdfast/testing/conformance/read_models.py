"""Read models: rows and settled jobs go together, rebuilds are fenced, queries find what they ask.

class TestMyEngine(ReadModelConformance):
    async def open_engine(self, clock, options):
        return await MyEngine.open(clock=clock, options=options)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest
from msgspec.structs import replace

from holdfast.engines.read_models.contract import (
    Apply,
    Fill,
    Filled,
    FillPosition,
    JobName,
    RowWriter,
)
from holdfast.engines.read_models.query import Aggregate, Comparison, Condition, RowQuery
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import (
    AccessDenied,
    ChangedMeanwhile,
    InvalidInput,
    LeaseLost,
    StorageError,
)
from holdfast.model.job import Job, State
from holdfast.model.outcome import completed
from holdfast.model.projection import ProjectionState, Rebuild, RebuildMode
from holdfast.model.read_model import ColumnType, ReadModel, Row, Value

from .fixture import OPERATION, EngineFixture, Suite, on_engine

THINGS = ReadModel(
    name="things",
    columns={
        "id": ColumnType.TEXT,
        "n": ColumnType.INTEGER,
        "price": ColumnType.REAL,
        "done": ColumnType.BOOLEAN,
        "at": ColumnType.TIMESTAMP,
        "data": ColumnType.JSON,
        "text": ColumnType.TEXT,
        "path": ColumnType.TEXT,
    },
    key=("id",),
    indexes=(("at", "id"), ("path",)),
    search=("text",),
)
EMPTY: Row = dict.fromkeys(THINGS.columns)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
START = FillPosition(rebuild="r1")


UNSTORABLE: list[Row] = [
    {"id": "a", "m": 1},
    {"n": 1},
    {"id": None},
    {"id": "a", "n": 2**63},
    {"id": "a", "n": True},
    {"id": "a", "at": datetime(2026, 1, 1)},  # noqa: DTZ001 - it is refused
    {"id": "a", "text": "\x00"},
    {"id": "a", "data": {"deep": ["\x00"]}},
    {"id": "a", "text": "\ud800"},
]
COMPARED: list[tuple[str, Comparison, Value, list[str]]] = [
    ("n", Comparison.EQUAL, 3, ["3"]),
    ("n", Comparison.AT_LEAST, 4, ["4", "5"]),
    ("n", Comparison.AT_MOST, 1, ["0", "1"]),
    ("n", Comparison.ONE_OF, (2, 5, 77), ["2", "5"]),
    ("id", Comparison.ONE_OF, ("1", "2", "x"), ["1", "2"]),
    ("price", Comparison.AT_LEAST, 2.25, ["5"]),
    ("done", Comparison.EQUAL, True, ["0", "2", "4"]),
    ("at", Comparison.AT_MOST, NOON + timedelta(hours=1), ["0", "1"]),
    ("path", Comparison.WITHIN, "a/b", ["1", "2"]),
    ("path", Comparison.WITHIN, ("a/b/c", "ab"), ["2", "4"]),
    ("path", Comparison.WITHIN, "a", ["0", "1", "2", "3"]),
    ("id", Comparison.EQUAL, "' OR 1 = 1 --", []),
]
"""A condition, and the rows that it finds."""
SEARCHED = {
    "图书": ["a", "b"],
    "书馆": ["a"],
    "图书馆": ["a"],
    "馆图": [],
    "馆": ["a"],
    "renamed": ["a", "c"],
    "RENAMED": ["a", "c"],
    "renamed 图书": ["a"],
    "rename": [],
    "o'brien": ["c"],
    "gone": [],
}
"""What is searched for, and the rows that it finds."""


def writing(*rows: Row) -> Apply:
    """Return an ``Apply`` that stores these rows, whatever the jobs are."""

    def apply(writer: RowWriter, _skipped: frozenset[JobName]) -> None:
        for row in rows:
            writer.upsert(row)

    return apply


def counting(jobs: Iterable[Job]) -> Apply:
    """Return an ``Apply`` that counts how often each job was applied."""
    names = [(job.tenant, job.id) for job in jobs]

    def apply(writer: RowWriter, skipped: frozenset[JobName]) -> None:
        for name in names:
            if name not in skipped:
                count = (writer.get((name[1],)) or {}).get("n") or 0
                assert isinstance(count, int)
                writer.upsert({"id": name[1], "n": count + 1})

    return apply


def filling(position: FillPosition, *rows: Row, covered: Sequence[JobName] = ()) -> Fill:
    """Return a ``Fill`` that stores these rows."""

    def fill(writer: RowWriter) -> Filled:
        writing(*rows)(writer, frozenset())
        return Filled(position, covered)

    return fill


async def store(fixture: EngineFixture, *rows: Row, generation: int = 1) -> None:
    """Make a generation, if it does not exist, and store these rows in it."""
    models = fixture.engine.read_models
    await models.create(THINGS, generation)
    position = await models.position(THINGS, generation)
    await models.fill(THINGS, generation, filling(START, *rows), expected=position)


async def hold(fixture: EngineFixture, *ids: str) -> list[Job]:
    """Make a generation, and jobs for it; claim them."""
    await fixture.engine.read_models.create(THINGS, 1)
    await fixture.put(*ids)
    return await fixture.take(len(ids))


async def found(fixture: EngineFixture, generation: int = 1, **query: object) -> list[Value]:
    """Return the ids of the rows that a query finds."""
    make: type[RowQuery] = RowQuery
    wanted = make(**{"order": ("id",), **query})  # type: ignore[arg-type]
    rows = await fixture.engine.read_models.select(THINGS, generation, wanted)
    return [row["id"] for row in rows]


async def counted(fixture: EngineFixture) -> dict[Value, Value]:
    """Return how often each job was applied."""
    rows = await fixture.engine.read_models.select(THINGS, 1, RowQuery())
    return {row["id"]: row["n"] for row in rows}


class ApplyRules(Suite):
    """A job's rows are written once, together with its end, or not at all."""

    @on_engine
    async def test_rows_are_written_and_jobs_completed_together(
        self, fixture: EngineFixture
    ) -> None:
        jobs = await hold(fixture, "a", "b")
        outcomes = [completed(job) for job in jobs]
        answers = await fixture.engine.read_models.apply(THINGS, 1, counting(jobs), outcomes)
        assert answers == [None, None]
        assert await counted(fixture) == {"a": 1, "b": 1}
        assert [await fixture.state(name) for name in ("a", "b")] == [State.COMPLETED] * 2

    @on_engine
    async def test_what_apply_raises_is_raised_and_nothing_is_changed(
        self, fixture: EngineFixture
    ) -> None:
        [job] = await hold(fixture, "a")

        def fails(rows: RowWriter, _skipped: frozenset[JobName]) -> None:
            rows.upsert({"id": "a", "n": 1})
            raise KeyError("title")

        with pytest.raises(KeyError, match="title"):
            await fixture.engine.read_models.apply(THINGS, 1, fails, [completed(job)])
        assert await counted(fixture) == {}
        assert await fixture.state("a") is State.IN_FLIGHT
        assert await fixture.settle(completed(job)) == [None]

    @on_engine
    async def test_a_job_whose_lease_is_lost_is_left_out_and_the_others_are_applied(
        self, fixture: EngineFixture
    ) -> None:
        jobs = await hold(fixture, "a", "b", "c")
        await fixture.settle(completed(jobs[1]))
        outcomes = [completed(job) for job in jobs]
        answers = await fixture.engine.read_models.apply(THINGS, 1, counting(jobs), outcomes)
        assert [isinstance(answer, LeaseLost) for answer in answers] == [False, True, False]
        assert await counted(fixture) == {"a": 1, "c": 1}

    @on_engine
    async def test_when_all_leases_are_lost_nothing_is_written(
        self, fixture: EngineFixture
    ) -> None:
        jobs = await hold(fixture, "a", "b")
        await fixture.expire_leases()
        outcomes = [completed(job) for job in jobs]
        answers = await fixture.engine.read_models.apply(THINGS, 1, counting(jobs), outcomes)
        assert all(isinstance(answer, LeaseLost) for answer in answers)
        assert await counted(fixture) == {}

    @on_engine
    async def test_of_two_holders_one_after_the_other_only_the_last_applies(
        self, fixture: EngineFixture
    ) -> None:
        first = await hold(fixture, "a")
        await fixture.expire_leases()
        second = await fixture.take(worker="w2")
        models = fixture.engine.read_models
        [refused] = await models.apply(THINGS, 1, counting(first), [completed(first[0])])
        assert isinstance(refused, LeaseLost)
        assert await models.apply(THINGS, 1, counting(second), [completed(second[0])]) == [None]
        assert await counted(fixture) == {"a": 1}

    @on_engine
    async def test_a_generation_that_does_not_exist_is_named(self, fixture: EngineFixture) -> None:
        [job] = await hold(fixture, "a")
        with pytest.raises(StorageError, match="things has no generation 9"):
            await fixture.engine.read_models.apply(THINGS, 9, counting([job]), [completed(job)])
        with pytest.raises(StorageError, match="things has no generation 9"):
            await found(fixture, generation=9)
        assert await fixture.state("a") is State.IN_FLIGHT


class RowRules(Suite):
    """Rows are kept as they were given."""

    @on_engine
    async def test_every_type_comes_back_as_it_was_given(self, fixture: EngineFixture) -> None:
        east = timezone(timedelta(hours=8))
        full: Row = {
            "id": 'a "quoted" {name}, \\ and 图书',
            "n": -(2**63),
            "price": 0.1,
            "done": False,
            "at": datetime(2026, 3, 1, 20, 0, 0, 123_456, tzinfo=east),
            "data": {"b": [1, 2.5, None, True, "NULL"], "a": {"图": "书"}, "": '"'},
            "text": "",
            "path": "NULL",
        }
        await store(fixture, full, {"id": "b", "price": 3, "data": [], "done": True})
        rows = await fixture.engine.read_models.select(THINGS, 1, RowQuery(order=("id",)))
        assert rows == [full, {**EMPTY, "id": "b", "price": 3.0, "data": [], "done": True}]

    @on_engine
    async def test_what_was_written_here_is_read_before_it_is_stored(
        self, fixture: EngineFixture
    ) -> None:
        await store(fixture, {"id": "a", "n": 1, "text": "one"}, {"id": "b", "n": 1})
        seen: list[object] = []

        def change(rows: RowWriter) -> Filled:
            rows.upsert({"id": "a", "n": 2})
            rows.delete(("b",))
            rows.upsert({"id": "c", "n": 3})
            rows.delete(("d",))
            seen.extend([rows.get(("a",)), rows.get(("b",)), rows.get(("d",))])
            keys = [("a",), ("b",), ("c",), ("z",)]
            seen.append({key: row["n"] for key, row in rows.get_many(keys).items()})
            rows.delete(("c",))
            rows.upsert({"id": "b", "n": 5})
            return Filled(START)

        await fixture.engine.read_models.fill(THINGS, 1, change, expected=START)
        assert seen == [{"id": "a", "n": 2}, None, None, {("a",): 2, ("c",): 3}]
        rows = await fixture.engine.read_models.select(THINGS, 1, RowQuery(order=("id",)))
        assert rows == [{**EMPTY, "id": "a", "n": 2}, {**EMPTY, "id": "b", "n": 5}]

    @on_engine
    async def test_an_attempt_that_fails_is_undone_alone(self, fixture: EngineFixture) -> None:
        await store(fixture)
        errors: list[Exception | None] = []

        def change(rows: RowWriter) -> Filled:
            def wrong() -> None:
                rows.upsert({"id": "a", "n": 2})
                rows.upsert({"id": "b", "m": 2})

            rows.upsert({"id": "a", "n": 1})
            errors.append(rows.attempt(wrong))
            errors.append(rows.attempt(lambda: rows.upsert({"id": "c", "n": 3})))
            return Filled(START)

        await fixture.engine.read_models.fill(THINGS, 1, change, expected=START)
        assert isinstance(errors[0], InvalidInput)
        assert errors[1] is None
        assert await counted(fixture) == {"a": 1, "c": 3}

    @on_engine
    async def test_a_row_that_cannot_be_stored_is_refused_where_it_is_written(
        self, fixture: EngineFixture
    ) -> None:
        [job] = await hold(fixture, "a")
        refused: list[Exception | None] = []

        def apply(rows: RowWriter, _skipped: frozenset[JobName]) -> None:
            refused[:] = [rows.attempt(partial(rows.upsert, row)) for row in UNSTORABLE]

        models = fixture.engine.read_models
        assert await models.apply(THINGS, 1, apply, [completed(job)]) == [None]
        assert [type(error) for error in refused] == [InvalidInput] * len(UNSTORABLE)
        assert await found(fixture) == []


class FillRules(Suite):
    """A rebuild stores rows and its position together, and goes on in one place only."""

    @on_engine
    async def test_the_position_is_stored_with_the_rows(self, fixture: EngineFixture) -> None:
        models = fixture.engine.read_models
        await models.create(THINGS, 2)
        assert await models.position(THINGS, 2) is None
        further = replace(START, cursor="x", filled=2, failed=1)
        await models.fill(THINGS, 2, filling(further, {"id": "a"}), expected=None)
        assert await models.position(THINGS, 2) == further
        assert await found(fixture, generation=2) == ["a"]

    @on_engine
    async def test_a_fill_from_another_place_is_refused(self, fixture: EngineFixture) -> None:
        models = fixture.engine.read_models
        await store(fixture, {"id": "a"})
        for wrong in (None, replace(START, cursor="x"), replace(START, rebuild="r2")):
            with pytest.raises(ChangedMeanwhile):
                await models.fill(THINGS, 1, filling(START, {"id": "b"}), expected=wrong)
        assert await found(fixture) == ["a"]

    @on_engine
    async def test_a_fill_that_raises_changes_nothing(self, fixture: EngineFixture) -> None:
        await store(fixture, {"id": "a"})

        def fails(rows: RowWriter) -> Filled:
            rows.delete(("a",))
            raise KeyError("title")

        with pytest.raises(KeyError):
            await fixture.engine.read_models.fill(THINGS, 1, fails, expected=START)
        assert await found(fixture) == ["a"]

    @on_engine
    async def test_a_covered_job_is_only_settled(self, fixture: EngineFixture) -> None:
        jobs = await hold(fixture, "a", "b")
        models = fixture.engine.read_models
        covering = filling(START, {"id": "a", "n": 1}, covered=[("default", "a")])
        await models.fill(THINGS, 1, covering, expected=None)
        names = [("default", "a"), ("default", "b"), ("other", "a")]
        assert await models.covered(THINGS, 1, names) == {("default", "a")}
        outcomes = [completed(job) for job in jobs]
        assert await models.apply(THINGS, 1, counting(jobs), outcomes) == [None, None]
        assert await counted(fixture) == {"a": 1, "b": 1}
        assert await fixture.state("a") is State.COMPLETED

    @on_engine
    async def test_truncate_empties_a_generation_for_a_rebuild(
        self, fixture: EngineFixture
    ) -> None:
        models = fixture.engine.read_models
        await store(fixture, {"id": "other"}, generation=2)
        await store(fixture, {"id": "a", "text": "word"})
        covering = filling(START, covered=[("default", "a")])
        await models.fill(THINGS, 1, covering, expected=START)
        again = FillPosition(rebuild="r2")
        await models.truncate(THINGS, 1, again)
        assert await found(fixture) == await found(fixture, search="word") == []
        assert await models.position(THINGS, 1) == again
        assert await models.covered(THINGS, 1, [("default", "a")]) == set()
        assert await found(fixture, generation=2) == ["other"]


class ShapeRules(Suite):
    """Generations are made, extended and dropped."""

    @on_engine
    async def test_generations_stand_side_by_side(self, fixture: EngineFixture) -> None:
        models = fixture.engine.read_models
        for generation in (2, 1, 10):
            await store(fixture, {"id": f"g{generation}"}, generation=generation)
            await models.publish(THINGS, generation)
        assert await models.generations(THINGS) == [1, 2, 10]
        assert await models.generations(replace(THINGS, name="thing")) == []
        await models.drop(THINGS, 2)
        await models.drop(THINGS, 2)
        assert await models.generations(THINGS) == [1, 10]
        assert await found(fixture, generation=10) == ["g10"]
        await models.create(THINGS, 2)
        assert await found(fixture, generation=2) == []
        assert await models.position(THINGS, 2) is None

    @on_engine
    async def test_a_column_is_added_and_rows_stay(self, fixture: EngineFixture) -> None:
        models = fixture.engine.read_models
        await store(fixture, {"id": "a", "n": 1})
        columns = {**THINGS.columns, "owner": ColumnType.TEXT}
        wider = replace(THINGS, columns=columns, indexes=(*THINGS.indexes, ("owner",)))
        for _twice in range(2):
            await models.create(wider, 1)
            await models.publish(wider, 1)
        row: Row = {"id": "b", "owner": "ann"}
        await models.fill(wider, 1, filling(START, row), expected=START)
        rows = await models.select(wider, 1, RowQuery(order=("id",)))
        assert [(one["id"], one["n"], one["owner"]) for one in rows] == [
            ("a", 1, None),
            ("b", None, "ann"),
        ]

    @on_engine
    async def test_a_column_of_another_type_is_refused(self, fixture: EngineFixture) -> None:
        await store(fixture, {"id": "a", "n": 1})
        other = replace(THINGS, columns={**THINGS.columns, "n": ColumnType.TEXT})
        with pytest.raises(InvalidInput, match="n of things"):
            await fixture.engine.read_models.create(other, 1)
        assert await counted(fixture) == {"a": 1}

    @on_engine
    async def test_a_digest_depends_on_the_rows_alone(self, fixture: EngineFixture) -> None:
        models = fixture.engine.read_models
        rows: list[Row] = [
            {"id": str(n), "n": n, "price": n / 3, "at": NOON + timedelta(n), "data": {"a": n}}
            for n in range(50)
        ]
        await store(fixture, *rows)
        await store(fixture, {"id": "0", "n": 99}, *reversed(rows), generation=2)
        first = await models.digest(THINGS, 1)
        assert first.rows == 50
        assert await models.digest(THINGS, 2) == first
        turned = replace(THINGS, columns=dict(reversed(list(THINGS.columns.items()))))
        assert await models.digest(turned, 1) == first
        for changed in ({"n": 8}, {"price": 0.0}, {"at": NOON}, {"data": {"a": "7"}}):
            await store(fixture, {**rows[7], **changed})
            other = await models.digest(THINGS, 1)
            assert (other.rows, other.hash == first.hash) == (50, False)
        await store(fixture, rows[7])
        assert await models.digest(THINGS, 1) == first


class RowQueryRules(Suite):
    """Rows are found by columns, by full text, and page by page."""

    @on_engine
    async def test_rows_are_found_by_a_column(self, fixture: EngineFixture) -> None:
        paths = ("a", "a/b", "a/b/c", "a/bc", "ab", "b")
        rows: list[Row] = [
            {
                "id": str(n),
                "n": n,
                "price": n / 2,
                "done": n % 2 == 0,
                "at": NOON + timedelta(hours=n),
                "path": paths[n],
            }
            for n in range(6)
        ]
        await store(fixture, *rows)
        for column, comparison, value, ids in COMPARED:
            condition = Condition(column, comparison, value)
            assert await found(fixture, conditions=(condition,)) == ids, condition

    @on_engine
    async def test_pages_follow_each_other_without_a_gap(self, fixture: EngineFixture) -> None:
        rows: list[Row] = [
            {"id": f"{n:02}", "at": NOON + timedelta(hours=n // 3)} for n in range(10)
        ]
        await store(fixture, *rows)
        for descending in (False, True):
            query = RowQuery(order=("at", "id"), descending=descending, limit=4)
            seen: list[Value] = []
            for _page in range(4):
                page = await fixture.engine.read_models.select(THINGS, 1, query)
                seen += [row["id"] for row in page]
                if page:
                    query = replace(query, after=(page[-1]["at"], page[-1]["id"]))
            assert seen == sorted((f"{n:02}" for n in range(10)), reverse=descending)

    @on_engine
    async def test_full_text_finds_words_and_parts_of_chinese_ones(
        self, fixture: EngineFixture
    ) -> None:
        await store(
            fixture,
            {"id": "a", "text": "图书馆 was renamed"},
            {"id": "b", "text": "我的图书 gone"},
            {"id": "c", "text": "Renamed by O'Brien"},
            {"id": "d", "text": "gone"},
            {"id": "e"},
        )
        await store(fixture, {"id": "b", "text": "我的图书"})

        def change(rows: RowWriter) -> Filled:
            rows.delete(("d",))
            return Filled(START)

        await fixture.engine.read_models.fill(THINGS, 1, change, expected=START)
        for search, ids in SEARCHED.items():
            assert await found(fixture, search=search) == ids, search

    @on_engine
    async def test_a_query_that_cannot_be_answered_names_the_field(
        self, fixture: EngineFixture
    ) -> None:
        await store(fixture)
        for query, field in (
            ({"conditions": (Condition("m", Comparison.EQUAL, 1),)}, "m"),
            ({"order": ("m",)}, "m"),
            ({"search": "…"}, "search"),
            ({"after": ("a", "b")}, "after"),
            ({"limit": 0}, "limit"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await found(fixture, **query)
            assert refused.value.field == field

    @on_engine
    async def test_rows_are_counted_by_columns_and_by_day(self, fixture: EngineFixture) -> None:
        await store(
            fixture,
            *(
                {
                    "id": str(n),
                    "path": "b" if n < 3 else "a",
                    "done": n % 2 == 0,
                    "at": NOON + timedelta(hours=7 * n),
                    "text": "word" if n else "other",
                }
                for n in range(5)
            ),
        )
        count = fixture.engine.read_models.aggregate
        assert await count(THINGS, 1, RowQuery(), Aggregate()) == [{"count": 5}]
        assert await count(THINGS, 1, RowQuery(), Aggregate(by=("path",))) == [
            {"path": "b", "count": 3},
            {"path": "a", "count": 2},
        ]
        assert await count(THINGS, 1, RowQuery(), Aggregate(day_of="at")) == [
            {"day": "2026-03-01", "count": 2},
            {"day": "2026-03-02", "count": 3},
        ]
        by_both = Aggregate(by=("done",), day_of="at", limit=1)
        assert await count(THINGS, 1, RowQuery(search="word"), by_both) == [
            {"done": True, "day": "2026-03-02", "count": 2}
        ]
        with pytest.raises(InvalidInput):
            await count(THINGS, 1, RowQuery(), Aggregate(day_of="n"))


class StateRules(Suite):
    """What is stored about a projection changes only from what was expected."""

    @on_engine
    async def test_a_change_is_stored_with_its_audit_if_nothing_changed_meanwhile(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        first = ProjectionState(name="things", versions={1: 3})
        rebuild = Rebuild(
            id="r1", mode=RebuildMode.TRUNCATE, generation=1, by="ann", started_at_us=5
        )
        second = replace(first, rebuild=rebuild, incomplete=True)
        entry = AuditEntry("rebuild.start", "projection", "things", "ann")
        audited = Attribution("ann", "because", (entry,))
        await engine.set_projection(first, OPERATION, expected=None)
        await engine.set_projection(second, audited, expected=first)
        for wrong in (None, first):
            with pytest.raises(ChangedMeanwhile):
                await engine.set_projection(first, audited, expected=wrong)
        limited = Caller(tenant="default")
        with pytest.raises(AccessDenied):
            await engine.set_projection(first, audited, expected=second, caller=limited)
        assert await engine.projections() == {"things": second}
        records = await engine.audited()
        assert [record.entry.action for record in records] == ["rebuild.start"]
        assert await engine.fanout_settled(1)


class ReadModelConformance(ApplyRules, RowRules, FillRules, ShapeRules, RowQueryRules, StateRules):
    """Every rule of the contract of read models, one test each."""
