"""Lists: cursors of one list alone, pages both ways, chosen fields, totals, bounded filters."""

import asyncio
from urllib.parse import quote

import pytest

from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.model.permissions import Role
from holdfast.operations.cursor_secret import CursorSecret
from holdfast.operations.operations import Operations
from holdfast.testing import SimDisk

from .rig import Api, opened


async def jobs_of(api: Api, count: int, **more: object) -> list[str]:
    names = [f"j{number:03}" for number in range(count)]
    for name in names:  # one by one: each has a time of its own
        await api.engine.enqueue([NewJob(task="t", id=name, tenant="acme", **more)])  # type: ignore[arg-type]
    return names


def ids(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [job["id"] for job in answer["data"]]


@pytest.mark.parametrize("order", ["created", "-created"])
async def test_pages_go_both_ways(order):
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        names = await jobs_of(api, 10)
        names = names if order == "created" else names[::-1]
        path = f"/v2/jobs?limit=4&order={order}"
        pages, cursor = [], ""
        while True:
            got = (await api.call(key, "GET", f"{path}&cursor={cursor}")).json()
            pages.append(ids(got))
            cursor = got["meta"].get("next_cursor", "")
            if not cursor:
                break
        assert pages == [names[:4], names[4:8], names[8:]]
        back = (await api.call(key, "GET", f"{path}&cursor={got['meta']['prev_cursor']}")).json()
        assert ids(back) == names[4:8]
        again = (await api.call(key, "GET", f"{path}&cursor={back['meta']['prev_cursor']}")).json()
        assert ids(again) == names[:4]
        assert "prev_cursor" not in again["meta"], "there is nothing before the first page"
        onward = await api.call(key, "GET", f"{path}&cursor={again['meta']['next_cursor']}")
        assert ids(onward.json()) == names[4:8]
        assert 'rel="next"' in onward.headers["link"]
        assert 'rel="prev"' in onward.headers["link"]


async def test_orders_without_a_way_back_give_no_cursor_for_it():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await jobs_of(api, 5)
        for order in ("run_at", "-attempts"):
            path = f"/v2/jobs?limit=2&order={order}"
            first = (await api.call(key, "GET", path)).json()
            second = (
                await api.call(key, "GET", f"{path}&cursor={first['meta']['next_cursor']}")
            ).json()
            assert "prev_cursor" not in second["meta"]


async def cursor_of(api: Api, key: str, path: str) -> str:
    got = await api.call(key, "GET", path)
    found: str = got.json()["meta"]["next_cursor"]
    return found


async def test_a_cursor_is_of_its_filter_order_resource_and_reach_alone():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await jobs_of(api, 5)
        cursor = await cursor_of(api, key, "/v2/jobs?limit=2&queue=default")
        same = await api.call(
            key, "GET", f"/v2/jobs?limit=3&queue=default&cursor={cursor}&fields=id"
        )
        assert same.status_code == 200, same.text
        others = await api.key(Role.VIEWER, tenants=("other",))
        everything = await api.key(Role.VIEWER, tenants=())
        for whose, path in (
            (key, f"/v2/jobs?limit=2&queue=other&cursor={cursor}"),
            (key, f"/v2/jobs?limit=2&cursor={cursor}"),
            (key, f"/v2/jobs?limit=2&queue=default&order=created&cursor={cursor}"),
            (key, f"/v2/jobs?limit=2&queue=default&cursor={cursor[:-2]}AA"),
            (key, f"/v2/jobs?limit=2&queue=default&cursor={cursor[4:]}"),
            (key, f"/v2/jobs?limit=2&queue=default&cursor={'A' * 9_000}"),
            (key, "/v2/jobs?limit=2&queue=default&cursor=%00"),
            (others, f"/v2/jobs?limit=2&queue=default&cursor={cursor}"),
            (everything, f"/v2/jobs?limit=2&queue=default&cursor={cursor}"),
        ):
            got = await api.call(whose, "GET", path)
            assert (got.status_code, got.json().get("type")) == (400, "/problems/invalid-cursor")


async def test_control_without_a_signature_a_cursor_fits_another_list(monkeypatch):
    async def nothing(_self: CursorSecret, _message: bytes) -> bytes:
        return b"0" * 16

    monkeypatch.setattr(CursorSecret, "sign", nothing)
    with pytest.raises(AssertionError):
        await test_a_cursor_is_of_its_filter_order_resource_and_reach_alone()


async def test_every_process_signs_with_the_same_secret():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await jobs_of(api, 5)
        secrets = [CursorSecret(api.engine) for _process in range(4)]
        signed = await asyncio.gather(*(one.sign(b"a") for one in secrets))
        assert len(set(signed)) == 1
        cursor = await cursor_of(api, key, "/v2/jobs?limit=2")
        other = Api(api.engine)
        got = await other.call(key, "GET", f"/v2/jobs?limit=2&cursor={cursor}")
        assert got.status_code == 200


async def test_fields_are_chosen_by_name():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await jobs_of(api, 1)
        got = await api.call(key, "GET", "/v2/jobs?fields=status,id&fields=tenant")
        assert got.json()["data"] == [{"status": "pending", "id": "j000", "tenant": "acme"}]
        wrong = await api.call(key, "GET", "/v2/jobs?fields=statsu")
        assert wrong.status_code == 422
        assert "is 'status' meant?" in wrong.json()["detail"]
        hidden = await api.call(key, "GET", "/v2/jobs?fields=payload")
        assert (hidden.status_code, "include=payload" in hidden.text) == (422, True)
        asked = await api.call(key, "GET", "/v2/jobs?fields=payload&include=payload")
        assert asked.json()["data"] == [{"payload": {}}]


async def test_totals_are_counted_as_far_as_is_asked(monkeypatch):
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await jobs_of(api, 5)
        plain = (await api.call(key, "GET", "/v2/jobs")).json()
        assert "total" not in plain["meta"]
        for query, total in (
            ("count=capped", {"value": 5, "relation": "equal"}),
            ("count=exact&created_since=1h", {"value": 5, "relation": "equal"}),
            ("count=capped&order=-finished", {"value": 0, "relation": "equal"}),
        ):
            got = (await api.call(key, "GET", f"/v2/jobs?limit=2&{query}")).json()
            assert got["meta"]["total"] == total, query
        monkeypatch.setattr("holdfast.api.lists.COUNT_CAP", 3)
        got = (await api.call(key, "GET", "/v2/jobs?count=capped")).json()
        assert got["meta"]["total"] == {"value": 3, "relation": "at_least"}
        broad = await api.call(key, "GET", "/v2/jobs?count=exact")
        assert (broad.status_code, broad.json()["type"]) == (422, "/problems/filter-too-broad")
        assert (await api.call(key, "GET", "/v2/jobs?count=all")).status_code == 422


async def test_a_filter_that_no_index_narrows_says_what_to_add():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        for query in ("q=payload.to=bob", "text=boom", 'q="boom"', "q=-payload.to:bob"):
            path = "/v2/jobs?" + quote(query, safe="=.-:&")
            got = await api.call(key, "GET", path)
            assert (got.status_code, got.json()["type"]) == (422, "/problems/filter-too-broad"), (
                query,
                got.text,
            )
            assert "created_since" in got.json()["detail"]
            for more in ("created_since=1h", "status=dead", "id=a", "key=k", "class=transient"):
                assert (await api.call(key, "GET", f"{path}&{more}")).status_code == 200, more
            assert (await api.call(key, "GET", f"{path}&status=completed")).status_code == 422


# --- a walk while others write -----------------------------------------------------------------


async def walk_while_written(engine: Engine, order: str) -> None:
    """Every job that was there from the beginning to the end comes exactly once."""
    async with opened(engine) as api:
        key = await api.key(Role.VIEWER)
        old = [f"old{number:03}" for number in range(60)]
        for start in range(0, 60, 6):
            some = [
                NewJob(task="t", id=name, tenant="acme", queue="old")
                for name in old[start : start + 6]
            ]
            await engine.enqueue(some)

        async def write(turn: int) -> None:
            new = [
                NewJob(task="t", id=f"new{turn}-{number}", tenant="acme", queue="new")
                for number in range(5)
            ]
            await engine.enqueue(new)
            claim = await engine.claim(queues=["old", "new"], worker="w", limit=6)
            await engine.settle([completed(job, None) for job in claim.jobs])

        seen: list[str] = []
        path, cursor = f"/v2/jobs?limit=7&order={order}", ""
        for turn in range(100):
            got, _written = await asyncio.gather(
                api.call(key, "GET", f"{path}&cursor={cursor}"), write(turn)
            )
            assert got.status_code == 200, got.text
            seen += ids(got.json())
            cursor = got.json()["meta"].get("next_cursor", "")
            if not cursor:
                break
        assert len(set(seen)) == len(seen), "no job comes twice"
        assert set(old) <= set(seen), "none is left out"


async def journal() -> Engine:
    return await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))


async def test_a_walk_while_others_write_has_each_job_once_on_a_journal():
    await walk_while_written(await journal(), "-created")


async def test_a_walk_while_others_write_has_each_job_once_on_postgresql(server18):
    with server18.fresh() as database:
        await walk_while_written(await PostgresEngine.open(server18.store(database)), "-created")


async def test_control_pages_by_offset_fail_the_walk(monkeypatch):
    """Pages by a count of jobs, as many lists have them: those that come move the others."""
    real = Operations.page

    async def by_offset(self, wanted, *, cursor, limit, order):  # type: ignore[no-untyped-def]
        skipped = int(cursor or 0)
        page = await real(self, wanted, cursor="", limit=min(skipped + limit, 1_000), order=order)
        more = str(skipped + limit) if len(page.jobs) == skipped + limit else ""
        return type(page)(page.jobs[skipped:], more)

    monkeypatch.setattr(Operations, "page", by_offset)
    with pytest.raises(AssertionError):
        await walk_while_written(MemoryEngine(), "-created")


async def test_queues_come_in_pages_by_name_each_once():
    async with opened() as api:
        names = [f"q{number:03d}" for number in range(120)]
        jobs = [NewJob(task="t", queue=name, tenant="acme") for name in reversed(names)]
        await api.engine.enqueue([*jobs, NewJob(task="t", queue="q0000", tenant="other")])
        key = await api.key(Role.VIEWER)
        first = (await api.call(key, "GET", "/v2/queues")).json()
        assert len(first["data"]) == 50, "no answer has every queue"
        found, cursor = [one["queue"] for one in first["data"]], first["meta"]["next_cursor"]
        while cursor:
            got = (await api.call(key, "GET", f"/v2/queues?cursor={cursor}")).json()
            found += [one["queue"] for one in got["data"]]
            cursor = got["meta"].get("next_cursor")
        assert found == names
        foreign = await api.call(key, "GET", f"/v2/jobs?cursor={first['meta']['next_cursor']}")
        assert foreign.json()["type"] == "/problems/invalid-cursor"
        many = await api.call(key, "GET", "/v2/queues?limit=100000")
        assert many.status_code == 422
