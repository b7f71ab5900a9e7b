"""Subscriptions: which events become jobs, from which version on, and their audit."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from holdfast.model.access import Caller
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import AccessDenied, InvalidInput
from holdfast.model.subscription import MAX_SUBSCRIPTIONS, Subscription

from .events import CHRONICLE, SEARCH, event, event_id, new_event, subscribe
from .fixture import OPERATION, EngineFixture, Suite, on_engine

AUDITED = Attribution("ann", "because", (AuditEntry("subscription.set", "queue", "x", "ann"),))


class SubscriptionRules(Suite):
    """A subscription is stored in the engine, and applies to events from its version on."""

    @on_engine
    async def test_subscriptions_are_stored_until_they_are_removed(
        self, fixture: EngineFixture
    ) -> None:
        assert await fixture.engine.subscriptions() == {}
        stored = await subscribe(fixture, CHRONICLE, SEARCH)
        assert [replace(one, since_version=0) for one in stored] == [CHRONICLE, SEARCH]
        assert await fixture.engine.subscriptions() == {one.name: one for one in stored}
        assert await fixture.engine.set_subscription("search", None, OPERATION) is None
        assert await fixture.engine.set_subscription("unknown", None, OPERATION) is None
        assert await fixture.engine.subscriptions() == {"chronicle": stored[0]}

    @on_engine
    async def test_they_come_in_the_order_of_their_names(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, *(replace(CHRONICLE, name=name) for name in ("c", "a", "b")))
        assert list(await fixture.engine.subscriptions()) == ["a", "b", "c"]
        await fixture.engine.append([new_event(1), new_event(2)])
        expected = [f"{name}:{event_id(number)}" for number in (1, 2) for name in "abc"]
        assert await fixture.find() == expected
        assert await fixture.take_ids(queues=[CHRONICLE.queue], chain=6) == expected

    @on_engine
    async def test_only_events_from_its_version_on_become_jobs(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.engine.append([new_event(1)])
        [chronicle] = await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(2)])
        [search] = await subscribe(fixture, SEARCH)
        await fixture.engine.append([new_event(3)])
        versions = [(await event(fixture, number)).fanout_version for number in (1, 2, 3)]
        assert 0 < chronicle.since_version < search.since_version
        assert versions[0] < chronicle.since_version <= versions[1]
        assert versions[1] < search.since_version <= versions[2]
        assert sorted(await fixture.find()) == [
            f"chronicle:{event_id(2)}",
            f"chronicle:{event_id(3)}",
            f"search:{event_id(3)}",
        ]

    @on_engine
    async def test_other_event_types_begin_a_new_version(self, fixture: EngineFixture) -> None:
        [first] = await subscribe(fixture, CHRONICLE)
        [same] = await subscribe(fixture, replace(CHRONICLE, since_version=99))
        assert same == first
        [moved] = await subscribe(fixture, replace(CHRONICLE, queue="slow", task="u"))
        assert moved == replace(first, queue="slow", task="u")
        [fewer] = await subscribe(fixture, replace(moved, event_types=("book.lent",)))
        assert fewer.since_version > first.since_version
        await fixture.engine.append([new_event(1), new_event(2, event_type="book.lent")])
        job = await fixture.job(f"chronicle:{event_id(2)}")
        assert (job.queue, job.task) == ("slow", "u")
        assert await fixture.find() == [job.id]

    @on_engine
    async def test_pending_jobs_stay_when_it_changes_or_goes(self, fixture: EngineFixture) -> None:
        [first] = await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(1, key="a")])
        await subscribe(fixture, replace(CHRONICLE, queue="other"))
        await fixture.engine.append([new_event(2, key="b")])
        await fixture.engine.set_subscription("chronicle", None, OPERATION)
        await fixture.engine.append([new_event(3, key="c")])
        await fixture.complete(f"chronicle:{event_id(1)}", queues=["chronicle"])
        await fixture.complete(f"chronicle:{event_id(2)}", queues=["other"])
        assert await fixture.take_ids(queues=["chronicle", "other"]) == []
        [again] = await subscribe(fixture, CHRONICLE)
        assert again.since_version > first.since_version
        assert (await event(fixture, 3)).fanout_version < again.since_version

    @on_engine
    async def test_an_event_appended_again_makes_no_job_for_a_new_subscription(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.engine.append([new_event(1)])
        await subscribe(fixture, CHRONICLE)
        [receipt] = await fixture.engine.append([new_event(1)])
        assert not receipt.created
        assert await fixture.find() == []

    @on_engine
    async def test_its_changes_are_in_the_audit(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        changes: list[dict[str, dict[str, object]]] = []
        for one in (CHRONICLE, replace(CHRONICLE, task="u"), None):
            await engine.set_subscription("chronicle", one, AUDITED)
            [record] = await engine.audited(limit=1, newest=True)
            assert (record.entry.action, record.entry.user_id) == ("subscription.set", "ann")
            changes.append(json.loads(record.entry.changes))
        created, changed, removed = changes
        assert created["before"] is None
        assert created["after"]["queue"] == "chronicle"
        assert changed == {"before": {"task": "chronicle_entry"}, "after": {"task": "u"}}
        assert removed["before"]["task"] == "u"
        assert removed["after"] is None
        assert len(await engine.audited()) == 3

    @pytest.mark.parametrize(
        ("field", "changed"),
        [
            ("queue", {"queue": ""}),
            ("task", {"task": "a\nb"}),
            ("event_types", {"event_types": ("",)}),
            ("event_types", {"event_types": ["x"]}),
            ("max_attempts", {"max_attempts": 0}),
            ("name", {"name": "other"}),
        ],
    )
    @on_engine
    async def test_a_bad_subscription_is_refused(
        self, fixture: EngineFixture, field: str, changed: dict[str, object]
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_subscription(
                "chronicle", replace(CHRONICLE, **changed), OPERATION
            )
        assert refused.value.field == field
        assert await fixture.engine.subscriptions() == {}

    @pytest.mark.parametrize("name", ["", "x" * 219, "a\nb"])
    @on_engine
    async def test_a_bad_name_is_refused(self, fixture: EngineFixture, name: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_subscription(name, replace(CHRONICLE, name=name), OPERATION)
        assert refused.value.field == "name"

    @on_engine
    async def test_the_longest_name_is_one_of_jobs(self, fixture: EngineFixture) -> None:
        name = "x" * 218
        await subscribe(fixture, replace(CHRONICLE, name=name))
        await fixture.engine.append([new_event(1)])
        assert await fixture.find() == [f"{name}:{event_id(1)}"]

    @on_engine
    async def test_what_is_no_subscription_is_refused(self, fixture: EngineFixture) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_subscription("a", "b", OPERATION)  # type: ignore[arg-type]
        assert refused.value.field == "subscription"

    @on_engine
    async def test_a_change_names_who_and_why(self, fixture: EngineFixture) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_subscription("chronicle", CHRONICLE, Attribution("ann", ""))
        assert refused.value.field == "why"
        assert await fixture.engine.subscriptions() == {}

    @on_engine
    async def test_only_an_unlimited_caller_subscribes(self, fixture: EngineFixture) -> None:
        for caller in (Caller("default"), Caller(None, ("library:1",))):
            with pytest.raises(AccessDenied):
                await fixture.engine.set_subscription(
                    "chronicle", CHRONICLE, OPERATION, caller=caller
                )
        assert await fixture.engine.subscriptions() == {}

    @on_engine
    async def test_there_are_not_too_many(self, fixture: EngineFixture) -> None:
        many = [Subscription(f"s{number}", "q", "t") for number in range(MAX_SUBSCRIPTIONS)]
        await subscribe(fixture, *many)
        with pytest.raises(InvalidInput, match="100") as refused:
            await fixture.engine.set_subscription(
                "one-more", replace(many[0], name="one-more"), OPERATION
            )
        assert refused.value.field == "name"
        await subscribe(fixture, replace(many[0], task="u"))
        await fixture.engine.append([new_event(1)])
        assert (await fixture.counts("q")).pending == MAX_SUBSCRIPTIONS
