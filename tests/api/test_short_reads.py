"""On PostgreSQL a GET gives up soon, with connections of its own; a change keeps its time-out."""

import asyncio

import psycopg

from holdfast.model.permissions import Role
from holdfast.settings import Settings
from holdfast.stores.opening import connect_for_looking, connect_postgres

from .rig import Api


async def test_a_slow_list_is_503_while_a_change_waits_on(server18):
    with server18.fresh() as database:
        settings = Settings(store=server18.store(database), api_statement_timeout_seconds=0.5)
        engine, looking = await connect_postgres(settings), await connect_for_looking(settings)
        api, control = Api(engine, looking=looking), Api(engine)
        async with api.http, control.http:
            key = await api.key(Role.RESPONDER)
            async with await psycopg.AsyncConnection.connect(database) as other:
                await other.execute("LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")
                body = {"task": "t", "id": "a"}
                change = asyncio.create_task(api.call(key, "POST", "/v2/jobs", body=body))
                # Without connections of its own a list waits as long as a change does.
                long_list = asyncio.create_task(control.call(key, "GET", "/v2/jobs"))
                got = await api.call(key, "GET", "/v2/jobs")
                assert (got.status_code, got.json()["type"]) == (503, "/problems/unavailable")
                assert got.headers["retry-after"] == "1"
                assert "lock" in got.json()["detail"]
                assert not change.done()
                assert not long_list.done()
            assert (await change).status_code == 201
            assert (await long_list).status_code == 200
            slow = await api.call(key, "GET", "/v2/jobs")
            assert [one["id"] for one in slow.json()["data"]] == ["a"]
        await looking.close()
        await engine.close()
