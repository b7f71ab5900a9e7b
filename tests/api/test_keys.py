"""Keys, tenants and ``/me`` over HTTP."""

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.permissions import Role
from holdfast.operations import keys
from holdfast.testing import SimDisk

from .rig import Api, opened

WHY = {"why": "a test"}


async def test_the_life_of_a_key():
    async with opened() as api:
        await the_life_of_a_key(api)


async def test_the_same_on_a_journal():
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        await the_life_of_a_key(api)


async def the_life_of_a_key(api: Api) -> None:
    admin = await api.key(Role.ADMIN)
    body = {"name": "ci", "roles": ["producer"], "expires_seconds": 3600, **WHY}
    made = await api.call(admin, "POST", "/v2/keys", body=body)
    assert made.status_code == 201, made.text
    place, text = made.headers["location"], made.json()["data"]["text"]
    assert made.json()["data"]["key"]["tenants"] == ["acme"]
    assert (await api.call(text, "GET", "/v2/me")).json()["data"]["name"] == "ci"
    shown = await api.call(admin, "GET", place)
    assert shown.json()["data"]["last_used_at"] is not None
    secret = text.rpartition("_")[2]
    listed = await api.call(admin, "GET", "/v2/keys")
    assert [one["name"] for one in listed.json()["data"]] == ["ci", "key1"]
    assert secret not in listed.text + shown.text
    rotated = await api.call(admin, "POST", f"{place}/rotate", body={**WHY, "overlap_seconds": 0})
    assert (await api.call(text, "GET", "/v2/me")).status_code == 401
    newer = rotated.json()["data"]["text"]
    assert (await api.call(newer, "GET", "/v2/me")).status_code == 200
    gone = await api.call(admin, "DELETE", f"{place}?why=done")
    assert gone.status_code == 200
    assert (await api.call(newer, "GET", "/v2/me")).status_code == 401
    assert (await api.call(admin, "GET", place)).status_code == 404
    entries = [one.entry for one in await api.engine.audited(limit=100)]
    acts = [(one.action, one.user_id) for one in entries if one.user_id == "key1"]
    assert acts == [("key.create", "key1"), ("key.rotate", "key1"), ("key.revoke", "key1")]
    assert secret not in str(entries)


@pytest.mark.parametrize(
    "change",
    [
        {"tenants": ["other"]},
        {"tenants": ["acme", "other"]},
        {"tenants": []},
        {"scopes": []},
        {"scopes": ["library:43"]},
    ],
)
async def test_a_key_makes_no_key_that_reaches_more(change):
    async with opened() as api:
        key = await api.key(Role.ADMIN, scopes=("library:42",))
        body = {"name": "more", "roles": ["viewer"], **WHY, **change}
        if len(change.get("tenants", ["acme"])) != 1:
            body["scopes"] = []
        got = await api.call(key, "POST", "/v2/keys", body=body)
        assert got.status_code == 403, got.text
        assert got.json()["type"] == "/problems/forbidden"
        assert len(await api.engine.records("key")) == 1
        actions = [one.entry.action for one in await api.engine.audited(limit=100)]
        assert "access.denied" in actions


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"roles": ["root"]}, "/role"),
        ({"roles": []}, "/role"),
        ({"name": ""}, "/name"),
        ({"name": "key1"}, "/name"),
        ({"why": " "}, "/why"),
        ({"expires_seconds": -1}, "/expires_seconds"),
        ({"expires_seconds": 1e300}, "/expires_seconds"),
        ({"expires_seconds": 5, "expires_at": "2999-01-01T00:00:00Z"}, "/expires_seconds"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "/expires_at"),
        ({"expires_at": "0001-01-01T00:00:00Z"}, "/expires_at"),
    ],
)
async def test_a_wrong_key_is_refused_with_its_field(change, pointer):
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        body = {"name": "ci", "roles": ["viewer"], **WHY, **change}
        got = await api.call(key, "POST", "/v2/keys", body=body)
        assert (got.status_code, got.json()["errors"][0]["pointer"]) == (422, pointer), got.text
        assert len(await api.engine.records("key")) == 1


async def test_a_name_of_another_tenant_is_not_told_and_must_be_told_apart_by_its_id():
    async with opened() as api:
        await api.key(Role.VIEWER, tenants=("other",), name="ci")
        acme, wide = await api.key(Role.ADMIN), await api.key(Role.ADMIN, tenants=())
        body = {"name": "ci", "roles": ["viewer"], **WHY}
        made = await api.call(acme, "POST", "/v2/keys", body=body)
        assert made.status_code == 201, made.text
        several = await api.call(wide, "DELETE", "/v2/keys/ci?why=x")
        assert (several.status_code, made.json()["data"]["key"]["id"] in several.text) == (
            422,
            True,
        )
        taken = await api.call(acme, "POST", "/v2/keys", body={**body, "name": "key2"})
        assert taken.status_code == 422, "a key of every tenant acts under its name here too"


async def test_tenants_with_their_counts():
    async with opened() as api:
        await api.dead_letter("a", "acme")
        await api.event("00000000-0000-7000-8000-000000000001", "acme")
        await api.key(Role.VIEWER, tenants=("other",))
        wide, acme = await api.key(Role.ADMIN, tenants=()), await api.key(Role.ADMIN)
        listed = (await api.call(wide, "GET", "/v2/tenants")).json()["data"]
        found = [(one["tenant"], one["keys"], one["jobs"]["dead"]) for one in listed]
        assert found == [("acme", 2, 1), ("default", 1, 0), ("other", 2, 0)]
        first = (await api.call(wide, "GET", "/v2/tenants?limit=2")).json()
        rest = await api.call(wide, "GET", f"/v2/tenants?cursor={first['meta']['next_cursor']}")
        assert [one["tenant"] for one in rest.json()["data"]] == ["other"]
        own = (await api.call(acme, "GET", "/v2/tenants")).json()["data"]
        assert [one["tenant"] for one in own] == ["acme"]
        shown = (await api.call(acme, "GET", "/v2/tenants/acme")).json()["data"]
        assert (shown["jobs"]["dead"], shown["events"]) == (1, 1)
        for path in ("/v2/tenants/other", "/v2/tenants/%00", "/v2/tenants/other/tenants"):
            assert (await api.call(acme, "GET", path)).status_code == 404


async def test_me_says_the_limits():
    async with opened() as api:
        me = (await api.call(await api.key(Role.WORKER), "GET", "/v2/me")).json()["data"]
        assert (me["limits"]["batch"], me["limits"]["body_bytes"]) == (1_000, 8 << 20)


async def test_control_a_key_of_more_is_noticed(monkeypatch):
    monkeypatch.setattr(keys, "_check_within", lambda _key, _principal: None)
    with pytest.raises(AssertionError):
        await test_a_key_makes_no_key_that_reaches_more({"tenants": ["other"]})
