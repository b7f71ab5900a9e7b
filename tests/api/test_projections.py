"""Projections, rebuilds and the chronicle over HTTP."""

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.read_models.query import RowQuery
from holdfast.model.access import Caller
from holdfast.model.errors import AccessDenied
from holdfast.model.permissions import Role
from holdfast.model.principal import Principal, local_principal
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.operations.access import read_models
from holdfast.operations.projections import ProjectionOperations
from holdfast.testing import SimDisk

from .library import declarations
from .rig import Api, opened

WHY = {"why": "a test"}
UUID = "00000000-0000-7000-8000-{:012d}"


async def test_the_life_of_a_projection():
    async with opened() as api:
        await the_life_of_a_projection(api)


async def test_the_same_on_a_journal():
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        await the_life_of_a_projection(api)


async def the_life_of_a_projection(api: Api) -> None:
    key = await api.key(Role.RESPONDER, tenants=())
    await api.event(UUID.format(1), "acme")
    started = await api.call(key, "POST", "/v2/projections/titles/rebuild", body=WHY)
    assert started.status_code == 202, started.text
    rebuild = started.headers["location"]
    assert (await api.call(key, "GET", rebuild)).json()["data"]["phase"] == "starting"
    again = await api.call(key, "POST", "/v2/projections/titles/rebuild", body=WHY)
    assert (again.status_code, again.json()["type"]) == (409, "/problems/conflict")
    gone = await api.call(key, "POST", f"{rebuild}/abort", body=WHY)
    assert (gone.status_code, gone.json()["data"]["phase"]) == (202, "cancelling"), gone.text
    await drive(api, rebuild)
    assert (await api.call(key, "POST", f"{rebuild}/abort", body=WHY)).status_code == 409

    started = await api.call(key, "POST", "/v2/projections/titles/rebuild", body=WHY)
    rebuild = started.headers["location"]
    await drive(api, rebuild)
    done = (await api.call(key, "GET", rebuild)).json()["data"]
    assert (done["projection"], done["phase"], done["rows"]) == ("titles", "done", 1)
    listed = (await api.call(key, "GET", "/v2/rebuilds")).json()["data"]
    assert [one["phase"] for one in listed] == ["done", "cancelled"]
    shown = (await api.call(key, "GET", "/v2/projections/titles")).json()["data"]
    assert (shown["generation"], shown["last_rebuild"]["id"]) == (3, done["id"])
    rows = await api.call(key, "GET", "/v2/projections/titles/rows?where=book=b1&search=ulysses")
    assert [row["title"] for row in rows.json()["data"]] == ["Ulysses"]
    assert rows.json()["meta"]["incomplete"] is False

    back = await api.call(key, "POST", f"{rebuild}/rollback", body=WHY)
    assert (back.status_code, back.json()["data"]["generation"]) == (200, 1), back.text
    assert (await api.call(key, "POST", f"{rebuild}/rollback", body=WHY)).status_code == 409
    for action, state in (("pause", "paused"), ("resume", "live")):
        got = await api.call(key, "POST", f"/v2/projections/titles/{action}", body=WHY)
        assert (got.status_code, got.json()["data"]["state"]) == (200, state), got.text
    names = [one["name"] for one in (await api.call(key, "GET", "/v2/projections")).json()["data"]]
    assert names == ["chronicle", "titles"]


async def drive(api: Api, rebuild: str) -> None:
    """Do what a daemon does."""
    known = declarations()
    projections = ProjectionOperations(api.engine, known.projections, known.read)
    await projections.drive("titles", rebuild.rpartition("/")[2])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/projections/titles/rows?where=colour=red", 422),
        ("/v2/projections/titles/rows?where=book", 422),
        ("/v2/projections/titles/rows?order=-", 422),
        ("/v2/projections/titles/rows?order=colour", 422),
        ("/v2/projections/chronicle/rows", 422),
        ("/v2/projections/nothing/rows", 404),
        ("/v2/chronicle?order=recorded", 422),
        ("/v2/chronicle?cursor=x", 400),
        ("/v2/chronicle?search=%20", 422),
        ("/v2/chronicle:stats?by=colour", 422),
        ("/v2/chronicle/nothing", 404),
    ],
)
async def test_what_cannot_be_asked_for_is_refused(path, status):
    async with opened() as api:
        await api.project()
        got = await api.call(await api.key(Role.ADMIN), "GET", path)
        assert got.status_code == status, got.text


def test_rows_of_a_table_that_names_no_tenant_are_not_there_for_a_tenant():
    table = ReadModel(name="titles", columns={"book": ColumnType.TEXT}, key=("book",))
    tenant = Principal(name="ann", roles=(Role.ADMIN,), caller=Caller("acme"))
    with pytest.raises(AccessDenied):
        read_models.confined(table, RowQuery(), tenant)
    assert read_models.confined(table, RowQuery(), local_principal("ann")) == RowQuery()


async def test_the_chronicle_is_listed_both_ways_searched_shown_and_counted():
    async with opened() as api:
        for number in range(5):
            await api.event(UUID.format(number), "acme", title=f"Title{number}")
        await api.event(UUID.format(9), "other", title="Title9")
        await api.project()
        key = await api.key(Role.RESPONDER)
        first = await api.call(key, "GET", "/v2/chronicle?limit=2&order=occurred")
        assert texts(first) == ["ann added Title0", "ann added Title1"]
        following = first.json()["meta"]["next_cursor"]
        path = f"/v2/chronicle?limit=2&order=occurred&cursor={following}"
        second = await api.call(key, "GET", path)
        assert texts(second) == ["ann added Title2", "ann added Title3"]
        assert 'rel="prev"' in second.headers["link"]
        before = second.json()["meta"]["prev_cursor"]
        back = await api.call(key, "GET", f"/v2/chronicle?limit=2&order=occurred&cursor={before}")
        assert texts(back) == texts(first)
        found = await api.call(key, "GET", "/v2/chronicle?search=title3&include=payload")
        assert [one["payload"]["title"] for one in found.json()["data"]] == ["Title3"]
        shown = await api.call(key, "GET", f"/v2/chronicle/{UUID.format(4)}")
        assert (shown.json()["data"]["text"], "payload" in shown.json()["data"]) == (
            "ann added Title4",
            False,
        )
        counts = await api.call(key, "GET", "/v2/chronicle:stats?by=type")
        assert counts.json()["data"] == [{"name": "book.added", "count": 5}]


def texts(answer) -> list[str]:
    return [one["text"] for one in answer.json()["data"]]


async def test_who_may_not_see_data_sees_what_an_entry_is_about_and_cannot_search():
    async with opened() as api:
        await api.event(UUID.format(1), "acme", title="canary1")
        await api.project()
        for role in Role:
            key = await api.key(role)
            got = await api.call(key, "GET", "/v2/chronicle")
            search = await api.call(key, "GET", "/v2/chronicle?search=canary1")
            reveals = role in (Role.RESPONDER, Role.ADMIN)
            assert ("canary1" in got.text + search.text) == reveals, role
            if role is Role.VIEWER:
                assert texts(got) == ["book.added book b1"]
                assert search.json()["required_permission"] == "payload.read"


async def test_control_without_the_columns_left_out_a_viewer_reads_data(monkeypatch):
    monkeypatch.setattr(read_models, "DATA_COLUMNS", ())
    with pytest.raises(AssertionError):
        await test_who_may_not_see_data_sees_what_an_entry_is_about_and_cannot_search()


async def test_a_tenant_sees_no_figures_of_a_rebuild_of_all():
    async with opened() as api:
        await api.event(UUID.format(1), "acme")
        await api.event(UUID.format(2), "other")
        await api.project()
        key = await api.key(Role.VIEWER)
        for one in (await api.call(key, "GET", "/v2/rebuilds")).json()["data"]:
            assert (one["total"], one["done"], one["by"], one.get("why")) == (0, 0, "", None)
            assert "rows" not in one
