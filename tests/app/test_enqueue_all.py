"""``app.enqueue_all``: different tasks with dependencies among them, in one commit."""

import asyncio
from pathlib import Path

import psycopg
import pytest

from holdfast import Call, DuplicateId, Holdfast, InvalidInput, Job, PayloadInvalid, Task
from holdfast.model.job import State

from .stores import KINDS, Stores


class Shop:
    """An application with three tasks that note their runs."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.runs: list[str] = []

        @app.task
        async def resize(path: str, width: int = 800) -> str:
            self.runs.append(path)
            return f"{path}@{width}"

        @app.task(queue="mail")
        async def notify(user: int) -> int:
            self.runs.append(f"notify {user}")
            return user

        self.resize: Task = resize
        self.notify: Task = notify

    def calls(self) -> list[Call[object]]:
        first = self.resize.options(id="first", key="album:3").call("a.png")
        second = self.resize.options(key="album:3", priority=9).call("b.png", width=400)
        third = self.resize.options(depends_on=[second]).call("c.png")
        last = self.notify.options(depends_on=[first, third], id="last").call(7)
        return [first, second, third, last]


@pytest.fixture
def shop() -> Shop:
    return Shop(Holdfast("memory:"))


def jobs_of(app: Holdfast) -> list[Job]:
    found = app._binding.call_sync(lambda engine: engine.find())
    return sorted(found.jobs, key=lambda job: job.seq)


async def check_what_was_enqueued(app: Holdfast, calls: list[Call[object]]) -> None:
    handles = await app.enqueue_all(calls)
    first, second, third, last = [await handle.get() for handle in handles]
    assert [job.task for job in (first, second, third, last)] == ["resize"] * 3 + ["notify"]
    assert (first.id, first.ties.key, first.state) == ("first", "album:3", State.PENDING)
    assert (second.ties.key, second.priority) == ("album:3", 9)
    assert second.arguments() == {"path": "b.png", "width": 400}
    assert (third.state, third.ties.depends_on) == (State.BLOCKED, (second.id,))
    assert (last.id, last.queue, last.state) == ("last", "mail", State.BLOCKED)
    assert last.ties.depends_on == ("first", third.id)


async def test_every_job_has_its_own_task_options_and_dependencies(shop: Shop):
    await check_what_was_enqueued(shop.app, shop.calls())
    await shop.app.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_on_every_store_they_run_in_the_order_of_their_dependencies(stores: Stores, kind):
    made: list[Shop] = []
    async with stores.running(kind, lambda app: made.append(Shop(app))) as app:
        handles = await app.enqueue_all(made[-1].calls())
        assert [await handle.result(20) for handle in handles] == [
            "a.png@800",
            "b.png@400",
            "c.png@800",
            7,
        ]
        runs = made[0].runs
        assert runs[-1] == "notify 7"
        assert runs.index("a.png") < runs.index("b.png") < runs.index("c.png")
        with pytest.raises(DuplicateId, match="first"):  # all or none
            await app.enqueue_all([made[-1].resize.call("d.png"), *made[-1].calls()])
        skipped = await app.enqueue_all(made[-1].calls(), on_duplicate="skip")
        assert [handle.existed for handle in skipped] == [True, False, False, True]
        assert await skipped[2].result(20) == "c.png@800"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_may_depend_on_a_unique_one_that_existed(stores: Stores, kind):
    made: list[Shop] = []
    async with stores.running(kind, lambda app: made.append(Shop(app))) as app:
        shop = made[-1]
        unique = shop.resize.options(unique="u", delay="1h")
        held = await unique.enqueue("first.png")
        again = unique.call("second.png")
        twice = unique.call("third.png")
        after = shop.notify.options(depends_on=[again]).call(1)
        other = shop.notify.options(depends_on=[twice, again]).call(2)
        handles = await app.enqueue_all([again, twice, after, other])
        assert [handle.existed for handle in handles] == [True, True, False, False]
        for handle in handles[2:]:
            job = await handle.get()
            assert (job.state, job.ties.depends_on) == (State.BLOCKED, (held.id,))
        assert made[0].runs == []


def test_in_a_test_they_wait_until_they_are_run(shop: Shop):
    with shop.app.testing() as rehearsal:
        handles = shop.app.enqueue_all_sync(shop.calls())
        assert len(rehearsal.assert_pending(shop.resize)) == 2
        assert shop.runs == []
        rehearsal.drain()
        rehearsal.assert_completed(shop.resize, times=3)
        assert handles[3].result_sync() == 7
        assert shop.runs == ["a.png", "b.png", "c.png", "notify 7"]


def test_nothing_is_enqueued_if_one_is_refused(shop: Shop):
    shop.notify.options(id="last").enqueue_sync(1)
    with pytest.raises(DuplicateId, match="last"):
        shop.app.enqueue_all_sync(shop.calls())
    assert [job.id for job in jobs_of(shop.app)] == ["last"]
    shop.app.close_sync()


def test_a_wrong_argument_is_refused_when_the_call_is_made(shop: Shop):
    with pytest.raises(PayloadInvalid, match="resize: Expected `int`, got `str`"):
        shop.resize.call("a.png", "wide")


def test_a_call_that_is_not_in_the_list_is_refused(shop: Shop):
    elsewhere = shop.resize.call("a.png")
    waiting = shop.notify.options(depends_on=[elsewhere])
    with pytest.raises(InvalidInput, match="<call of resize> is not among these calls: add it"):
        shop.app.enqueue_all_sync([waiting.call(1)])
    with pytest.raises(InvalidInput, match=r"<call of resize> is not enqueued: pass both to app"):
        waiting.enqueue_sync(1)
    with pytest.raises(InvalidInput, match=r"<call of resize> is not enqueued: pass both to app"):
        waiting.enqueue_many_sync([(1,)])


def test_one_call_is_one_job(shop: Shop):
    call = shop.resize.call("a.png")
    with pytest.raises(InvalidInput, match="<call of resize> is there twice"):
        shop.app.enqueue_all_sync([call, call])
    one, other = shop.app.enqueue_all_sync([call]), shop.app.enqueue_all_sync([call])
    assert one[0].id != other[0].id
    shop.app.close_sync()


@pytest.mark.parametrize("wrong", [("a.png",), "resize", None])
def test_what_is_no_call_is_refused(shop: Shop, wrong):
    with pytest.raises(InvalidInput, match=r"is not a call: write task\.call\(\.\.\.\)"):
        shop.app.enqueue_all_sync([wrong])
    assert shop.app.enqueue_all_sync([]) == []
    shop.app.close_sync()


def test_a_call_of_another_application_is_refused(shop: Shop):
    other = Shop(Holdfast("memory:"))
    with pytest.raises(InvalidInput, match="<call of resize> is of another application"):
        shop.app.enqueue_all_sync([shop.notify.call(1), other.resize.call("a.png")])


def test_depends_on_takes_a_list_and_not_one_call(shop: Shop):
    with pytest.raises(InvalidInput, match="give a list of jobs"):
        shop.resize.options(depends_on=shop.resize.call("a.png"))  # type: ignore[arg-type]


def test_one_commit_has_one_way_with_duplicates(shop: Shop):
    shop.resize.options(id="a").enqueue_sync("a.png")
    skipping = shop.resize.options(id="a", on_duplicate="skip")
    assert skipping.enqueue_sync("b.png").existed
    assert shop.app.enqueue_all_sync([skipping.call("b.png"), shop.resize.call("c")])[0].existed
    refusing = shop.resize.options(id="b")  # as by default
    with pytest.raises(InvalidInput, match="the calls have different ones: give on_duplicate to"):
        shop.app.enqueue_all_sync([skipping.call("b.png"), refusing.call("b.png")])
    both = [skipping.call("b.png"), refusing.call("b.png")]
    assert [one.existed for one in shop.app.enqueue_all_sync(both, on_duplicate="skip")] == [
        True,
        False,
    ]
    shop.app.close_sync()


def test_many_calls_of_one_task(shop: Shop):
    task = shop.resize.options(key="k")
    handles = task.enqueue_many_sync([task.call("a.png"), ("b.png",), task.call("c.png", width=1)])
    assert len(handles) == 3
    assert [job.arguments()["path"] for job in jobs_of(shop.app)] == ["a.png", "b.png", "c.png"]
    assert {job.ties.key for job in jobs_of(shop.app)} == {"k"}
    for other in (shop.resize.call("d.png"), shop.notify.call(1)):
        with pytest.raises(InvalidInput, match="of another task or has options of its own: use"):
            task.enqueue_many_sync([other])
    shop.app.close_sync()


# --- in the caller's transaction ----------------------------------------------------------------


def test_they_come_with_the_callers_commit(stores: Stores):
    with stores.url("postgres") as store:
        shop = Shop(Holdfast(store))
        with psycopg.connect(str(store)) as connection:
            shop.app.enqueue_all_sync(shop.calls(), connection=connection)
            assert jobs_of(shop.app) == []
            connection.rollback()
            calls = [
                shop.resize.options(id="a", connection=connection).call("a.png"),
                shop.resize.call("b.png"),
            ]
            handles = shop.app.enqueue_all_sync(calls)
            assert jobs_of(shop.app) == []
            with pytest.raises(InvalidInput, match="the calls have different ones: give connect"):
                shop.app.enqueue_all_sync(
                    [*calls, shop.resize.options(connection="other").call("c.png")]
                )
        assert [job.id for job in jobs_of(shop.app)] == [handle.id for handle in handles]
        shop.app.close_sync()


async def test_they_come_with_an_asynchronous_commit(stores: Stores):
    with stores.url("postgres") as store:
        shop = Shop(Holdfast(store))
        async with await psycopg.AsyncConnection.connect(str(store)) as connection:
            handles = await shop.app.enqueue_all(shop.calls(), connection=connection)
            assert handles[0].id == "first"
        last = await handles[3].get()
        assert last.ties.depends_on == ("first", handles[2].id)
        await shop.app.close()


def test_only_a_server_joins_a_transaction(tmp_path: Path):
    shop = Shop(Holdfast(tmp_path / "data"))
    with pytest.raises(InvalidInput, match="only a PostgreSQL store can join a transaction"):
        asyncio.run(shop.app.enqueue_all(shop.calls(), connection="mine"))
