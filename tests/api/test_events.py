"""Events over HTTP: appended once, listed, corrected, and refused with the field named."""

import msgspec
import pytest

from holdfast.api.event_bodies import NewEventBody
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.permissions import Role
from holdfast.operations.event_inputs import EventInput, new_event_of
from holdfast.testing import SimDisk

from .rig import Api, opened

ID = "00000000-0000-7000-8000-0000000000aa"
BOOK = {"event_type": "book.added", "id": ID, "payload": {"book_id": "b1", "title": "Dune"}}


async def test_the_life_of_an_event():
    async with opened() as api:
        await the_life_of_an_event(api)


async def test_the_same_on_a_journal():
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        await the_life_of_an_event(api)


async def the_life_of_an_event(api: Api) -> None:
    key = await api.key(Role.RESPONDER)
    made = await api.call(key, "POST", "/v2/events", body=BOOK)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/v2/tenants/acme/events/{ID}"
    again = await api.call(key, "POST", "/v2/events", body=BOOK)
    assert (again.status_code, again.json()["data"]["existing"]) == (200, True)
    other = {**BOOK, "payload": {"book_id": "b1", "title": "Emma"}}
    conflict = await api.call(key, "POST", "/v2/events", body=other)
    assert (conflict.status_code, conflict.json()["type"]) == (409, "/problems/conflict")
    got = await api.call(key, "GET", f"{made.headers['location']}?include=payload")
    shown = got.json()["data"]
    assert (shown["actor_type"], shown["actor_id"]) == ("service", "key1")
    assert (shown["text"], shown["payload"]["title"]) == ("key1 added Dune", "Dune")
    fix = {"why": "a typo", "set": {"payload.title": "Dune Messiah"}}
    fixed = await api.call(key, "POST", f"/v2/events/{ID}/correct", body=fix)
    assert fixed.status_code == 201, fixed.text
    same = await api.call(key, "POST", f"/v2/events/{ID}/correct", body=fix)
    assert (same.status_code, same.json()["data"]["id"]) == (200, fixed.json()["data"]["id"])
    listed = (await api.call(key, "GET", "/v2/events?order=recorded&include=payload")).json()
    assert [(one["payload"]["title"], one.get("supersedes")) for one in listed["data"]] == [
        ("Dune", None),
        ("Dune Messiah", ID),
    ]
    audit = await api.engine.audited(limit=100)
    entries = [one.entry for one in audit if one.entry.action == "event.correct"]
    assert {(one.user_id, one.tenant, one.resource_id, one.reason) for one in entries} == {
        ("key1", "acme", ID, "a typo")
    }


async def test_the_actor_is_the_key_whatever_the_envelope_says():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        forged = {**BOOK, "actor_user_id": "root", "actor_name": "Root"}
        assert (await api.call(key, "POST", "/v2/events", body=forged)).status_code == 201
        (event,) = await api.engine.get_events([ID], tenant="acme")
        assert event is not None
        assert (event.actor_type, event.actor_id, event.actor_name) == ("service", "key1", "")


async def test_a_batch_is_all_or_nothing_and_names_what_is_wrong():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        good = {**BOOK, "id": None}
        bad = {"event_type": "book.added", "payload": {"book_id": "b2", "title": 7}}
        got = await api.call(key, "POST", "/v2/events:batch", body={"events": [good, bad]})
        assert got.status_code == 422, got.text
        assert got.json()["errors"][0]["pointer"] == "/events/1/payload/title"
        assert await api.engine.count_events() == 0
        made = await api.call(key, "POST", "/v2/events:batch", body={"events": [BOOK, good]})
        assert [one["existing"] for one in made.json()["data"]] == [False, False]
        again = await api.call(key, "POST", "/v2/events:batch", body={"events": [BOOK]})
        assert again.json()["data"][0]["existing"] is True
        many = {"events": [good] * 1_001}
        got = await api.call(key, "POST", "/v2/events:batch", body=many)
        assert (got.status_code, got.json()["type"]) == (413, "/problems/too-large")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"event_type": "book.lost"}, "/event_type"),
        ({"payload": {"book_id": "b1"}}, "/payload/title"),
        ({"payload": {"book_id": "b1", "title": "x", "colour": 1}}, "/payload/colour"),
        ({"id": "seven"}, "/id"),
        ({"scope": "//"}, "/scope"),
        ({"version": 9}, "/version"),
        ({"tenant": "other"}, ""),
        ({"supersedes": ID}, ""),
        ({"entity_id": "b2"}, "/entity_id"),
    ],
)
async def test_a_wrong_event_is_refused_with_its_field(change, pointer):
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        got = await api.call(key, "POST", "/v2/events", body={**BOOK, **change})
        assert (got.status_code, got.json()["type"]) == (422, "/problems/invalid-input"), got.text
        assert got.json()["errors"][0]["pointer"] == pointer, got.text
        assert await api.engine.count_events() == 0


async def test_data_is_shown_only_to_who_may_see_it_and_never_what_is_sensitive():
    async with opened() as api:
        writer = await api.key(Role.PRODUCER)
        body = {**BOOK, "payload": {"book_id": "b1", "title": "canary1", "donor": "canary2"}}
        assert (await api.call(writer, "POST", "/v2/events", body=body)).status_code == 201
        for role in Role:
            key = await api.key(role)
            plain = await api.call(key, "GET", f"/v2/events/{ID}")
            asked = await api.call(key, "GET", f"/v2/events/{ID}?include=payload")
            reveals = role in (Role.RESPONDER, Role.ADMIN)
            assert "canary2" not in plain.text + asked.text
            assert ("canary1" in plain.text + asked.text) == reveals
            if reveals:
                assert asked.json()["data"]["payload"]["donor"] == "***"
                assert "payload" not in plain.json()["data"]


async def test_data_of_a_type_that_the_server_does_not_know_is_not_shown():
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        await api.call(key, "POST", "/v2/events", body=BOOK)
        api.application._handler._options.declared.catalog.types.clear()
        got = (await api.call(key, "GET", f"/v2/events/{ID}?include=payload")).json()["data"]
        assert "payload" not in got
        assert "not declared at this server" in got["problem"]


async def test_pages_have_every_event_once_and_filters_narrow():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        for number in range(7):
            await api.event(f"00000000-0000-7000-8000-{number:012d}", "acme")
        seen: list[str] = []
        path = "/v2/events?limit=3"
        for _page in range(3):
            got = await api.call(key, "GET", path)
            seen += [one["id"][-1] for one in got.json()["data"]]
            path = "/v2/events" + got.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert seen == list("6543210")
        found = await api.call(key, "GET", "/v2/events?entity=book:b1&actor=ann&since=1h")
        assert len(found.json()["data"]) == 7
        none = await api.call(key, "GET", "/v2/events?actor=bob")
        assert none.json()["data"] == []
        for query, name in (
            ("cursor=x", "invalid-cursor"),
            ("order=up", "invalid-input"),
            ("since=soon", "invalid-input"),
            ("id=7", "invalid-input"),
            ("colour=red", "unknown-parameter"),
        ):
            bad = await api.call(key, "GET", f"/v2/events?{query}")
            assert bad.json()["type"] == f"/problems/{name}", bad.text


async def test_the_catalog_lists_types_and_says_no_path_of_the_machine():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        (listed,) = (await api.call(key, "GET", "/v2/catalog")).json()["data"]
        shown = (await api.call(key, "GET", "/v2/catalog/book.added")).json()["data"]
        assert listed == shown
        assert (shown["name"], shown["source"], shown["sensitive"]) == ("book.added", "", ["donor"])
        (schema,) = shown["json_schema"]["$defs"].values()
        assert schema["properties"]["title"] == {"type": "string"}


async def test_control_an_actor_of_the_envelope_is_noticed(monkeypatch):
    """The envelope is taken as it is."""

    def as_it_is(self, catalog, tenant, _actor_id):
        said = {**msgspec.structs.asdict(self), "tenant": tenant}
        return catalog.check(new_event_of(msgspec.convert(said, EventInput), catalog))

    monkeypatch.setattr(NewEventBody, "checked", as_it_is)
    with pytest.raises(AssertionError):
        await test_the_actor_is_the_key_whatever_the_envelope_says()
