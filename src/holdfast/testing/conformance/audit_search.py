"""What audit entries say about a change, and how they are found."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.model.actions import CancelJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditFilter
from holdfast.model.errors import InvalidInput
from holdfast.model.job import Edit
from holdfast.model.policy import QueuePolicy, Rate

from .audit import NIGHTLY
from .fixture import OPERATION, EngineFixture, Suite, named, on_engine, wanted


class AuditFactRules(Suite):
    """An entry says what was done: how many, which, and before and after; payloads never."""

    @on_engine
    async def test_a_bulk_action_counts_what_it_did_and_names_at_most_a_hundred(
        self, fixture: EngineFixture
    ) -> None:
        names = [f"j{number:03}" for number in range(103)]
        await fixture.put(*names)
        await fixture.put("other", tenant="acme")
        await fixture.put("running", priority=9)
        [running] = await fixture.take(1)
        assert running.id == "running"
        await fixture.engine.operate(CancelJobs(), named("running"), OPERATION)
        facts = await _facts(fixture, lambda by: fixture.engine.operate(CancelJobs(), wanted(), by))
        assert facts == {
            "count": 104,
            "kept": 1,
            "ids": names[:100],
            "tenants": ["acme", "default"],
        }

    @on_engine
    async def test_an_action_that_stops_at_its_limit_counts_what_it_did(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b", "c")
        cancel = lambda by: fixture.engine.operate(CancelJobs(), wanted(), by, limit=2)
        assert await _facts(fixture, cancel) == {"count": 2, "ids": ["a", "b"]}

    @on_engine
    async def test_an_edit_names_the_paths_that_changed_and_no_value_of_the_payload(
        self, fixture: EngineFixture
    ) -> None:
        before = {"to": {"mail": "old-secret", "name": "x"}, "parts": [1, {"n": 2}], "gone": 1}
        after = {"to": {"mail": "new-secret", "name": "x"}, "parts": [1, {"n": 3}], "new": 1}
        await fixture.put("a", payload=before)
        job = await fixture.job("a")
        changes = Edit(payload=after, priority=3, max_attempts=9)
        facts = await _facts(fixture, lambda by: fixture.engine.edit(job, changes, by))
        assert facts == {
            "count": 1,
            "ids": ["a"],
            "before": {"priority": 0, "max_attempts": job.max_attempts},
            "after": {"priority": 3, "max_attempts": 9},
            "payload": ["payload.gone", "payload.new", "payload.parts[1].n", "payload.to.mail"],
        }
        [record] = await fixture.engine.audited()
        assert "secret" not in record.entry.changes

    @on_engine
    async def test_a_policy_is_recorded_before_and_after(self, fixture: EngineFixture) -> None:
        first = QueuePolicy(max_in_flight=2, rate=Rate(5, 60.0))
        await fixture.engine.set_policy("q", first, OPERATION)
        change = lambda by: fixture.engine.set_policy("q", QueuePolicy(rate=Rate(5, 1.0)), by)
        assert await _facts(fixture, change) == {
            "before": {"max_in_flight": 2, "rate": [5, 60.0]},
            "after": {"max_in_flight": None, "rate": [5, 1.0]},
        }
        assert await _facts(fixture, lambda by: fixture.engine.set_policy("q", None, by)) == {
            "before": {"rate": [5, 1.0]},
            "after": {"rate": None},
        }

    @on_engine
    async def test_a_flag_and_a_schedule_are_recorded_before_and_after(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        await engine.set_flag("f", OPERATION, on=True)
        assert await _facts(fixture, lambda by: engine.set_flag("f", by, on=None)) == {
            "before": {"on": True},
            "after": {"on": None},
        }
        await engine.set_schedule("s", NIGHTLY, OPERATION)
        paused = replace(NIGHTLY, paused=True)
        assert await _facts(fixture, lambda by: engine.set_schedule("s", paused, by)) == {
            "before": {"paused": False},
            "after": {"paused": True},
        }
        removed = await _facts(fixture, lambda by: engine.set_schedule("s", None, by))
        assert removed["after"] is None


class AuditSearchRules(Suite):
    """The audit is searched by who, action, resource, tenant, time and reason, in pages."""

    @pytest.mark.parametrize(
        ("search", "numbers"),
        [
            (AuditFilter(), [1, 2, 3, 4, 5]),
            (AuditFilter(by=("ann",)), [1, 3, 5]),
            (AuditFilter(by=("ann", "eve")), [1, 3, 4, 5]),
            (AuditFilter(actions=("job.replay",)), [1]),
            (AuditFilter(actions=("job.",)), [1, 4, 5]),
            (AuditFilter(actions=("job.note", "flag.set")), [3, 4]),
            (AuditFilter(resource_type="queue"), [2]),
            (AuditFilter(resource_id="mail"), [2, 5]),
            (AuditFilter(resource_type="job", resource_id="mail"), [5]),
            (AuditFilter(tenant="acme"), [4]),
            (AuditFilter(tenant=""), [2, 3, 5]),
            (AuditFilter(text="OUTAGE of"), [1, 3]),
            (AuditFilter(text="É"), [5]),
            (AuditFilter(by=("ann",), actions=("job.",), text="outage"), [1]),
            (AuditFilter(by=("nobody",)), []),
        ],
        ids=str,
    )
    @on_engine
    async def test_a_search_finds_what_matches_either_way(
        self, fixture: EngineFixture, search: AuditFilter, numbers: list[int]
    ) -> None:
        await _five_entries(fixture)
        found = await fixture.engine.audited(search)
        assert [record.number for record in found] == numbers
        found = await fixture.engine.audited(search, newest=True)
        assert [record.number for record in found] == numbers[::-1]

    @on_engine
    async def test_a_search_by_time_includes_its_start_and_not_its_end(
        self, fixture: EngineFixture
    ) -> None:
        await _five_entries(fixture)
        times = {record.number: record.at_us for record in await fixture.engine.audited()}
        within = AuditFilter(from_us=times[2], to_us=times[4])
        assert [one.number for one in await fixture.engine.audited(within)] == [2, 3]

    @on_engine
    async def test_a_search_is_read_in_pages_from_both_ends(self, fixture: EngineFixture) -> None:
        await _five_entries(fixture)
        for newest, expected in ((False, [[1, 3], [5], []]), (True, [[5, 3], [1], []])):
            after, pages = 0, []
            for _page in range(3):
                page = await fixture.engine.audited(
                    AuditFilter(by=("ann",)), after=after, limit=2, newest=newest
                )
                pages.append([record.number for record in page])
                after = page[-1].number if page else after
            assert pages == expected

    @pytest.mark.parametrize(
        ("search", "field"),
        [
            (AuditFilter(by="ann"), "by"),  # type: ignore[arg-type]
            (AuditFilter(actions=("",)), "actions"),
            (AuditFilter(resource_id=3), "resource_id"),  # type: ignore[arg-type]
            (AuditFilter(from_us=-1), "from_us"),
            (AuditFilter(text="x" * 4_001), "text"),
            ("ann", "wanted"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    @on_engine
    async def test_a_bad_search_is_refused(
        self, fixture: EngineFixture, search: AuditFilter, field: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.audited(search)
        assert refused.value.field == field


async def _facts(
    fixture: EngineFixture, operate: Callable[[Attribution], Awaitable[object]]
) -> dict[str, object]:
    """Return what the engine adds to the entry of an operation."""
    await operate(Attribution("ann", "because", (AuditEntry("do", "job", "", "ann"),)))
    [record] = await fixture.engine.audited(limit=1, newest=True)
    found: dict[str, object] = json.loads(record.entry.changes)
    return found


async def _five_entries(fixture: EngineFixture) -> None:
    for entry in (
        AuditEntry("job.replay", "job", "a", "ann", reason="Outage of mail", tenant="default"),
        AuditEntry("queue.policy", "queue", "mail", "bob", reason="too loud"),
        AuditEntry("flag.set", "flag", "auto_replay", "ann", reason="after the outage OF mail"),
        AuditEntry("job.note", "job", "b", "eve", tenant="acme"),
        AuditEntry("job.cancel", "job", "mail", "ann", reason="É"),
    ):
        fixture.clock.advance(1)
        await fixture.engine.audit([entry])
