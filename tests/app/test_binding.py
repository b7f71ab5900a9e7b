"""Which loop and process an application's calls come from."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, NoOwner
from holdfast.engines.client.engine import ClientEngine
from holdfast.model.errors import DirectoryInUse, EngineClosed, WrongLoop


def declare(app: Holdfast) -> Any:
    @app.task
    def work(number: int) -> int:
        return number

    return work


class Owner:
    """A daemon on an event loop in a thread of its own."""

    def __init__(self, store: Path) -> None:
        self.app = Holdfast(store)
        self.work = declare(self.app)
        self._loop = asyncio.new_event_loop()
        self._ready, self._leave = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    def _run(self) -> None:
        self._loop.run_until_complete(self._own())
        self._loop.close()

    async def _own(self) -> None:
        async with self.app.running(worker_count=2):
            self._ready.set()
            await self._leave.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.fixture
def owner(store: Path) -> Iterator[Owner]:
    made = Owner(store)
    yield made
    made.stop()


@pytest.fixture
def client(store: Path, owner: Owner) -> Iterator[Any]:
    """A task of an application that talks to the owner."""
    app = Holdfast(store)
    work = declare(app)
    work.app = app
    yield work
    app.close_sync()


def in_thread(call: Callable[[], Any]) -> Any:
    """Return what the call returns, from another thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - handed over
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert found, "it did not come back"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_sync_calls_work_without_any_loop(client):
    handle = client.enqueue_sync(7)
    assert handle.result_sync(timeout=20) == 7
    assert [h.result_sync(timeout=20) for h in client.enqueue_many_sync([(1,), (2,)])] == [1, 2]


def test_many_threads_share_one_connection_to_the_owner(client):
    def call(number: int) -> Any:
        return client.enqueue_sync(number).result_sync(timeout=20)

    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(call(n)))  # type: ignore[misc]
        for n in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == list(range(10))


def test_sync_calls_from_a_thread_hop_to_the_loop_that_is_bound(client):
    async def main() -> list[object]:
        first = await client.enqueue(1)
        second = await asyncio.to_thread(client.enqueue_sync, 2)
        third = await asyncio.to_thread(second.result_sync, 20)
        found = [await first.result(20), third]
        await client.app.close()
        return found

    assert asyncio.run(main()) == [1, 2]


async def test_a_sync_call_on_the_bound_loop_would_wait_for_itself_and_is_refused(client):
    handle = await client.enqueue(1)
    for call in (
        lambda: client.enqueue_sync(2),
        lambda: client.enqueue_many_sync([(2,)]),
        lambda: handle.result_sync(1),
        client.app.close_sync,
    ):
        with pytest.raises(WrongLoop, match="make the event loop wait for itself"):
            call()
    assert await handle.result(20) == 1
    await client.app.close()


def test_a_loop_in_another_thread_hops_to_the_one_that_is_bound(client):
    async def main() -> None:
        first = await client.enqueue(1)

        async def elsewhere() -> object:
            handle = await client.enqueue(2)
            assert await first.result(20) == 1
            return await handle.result(20)

        assert await asyncio.to_thread(in_thread, lambda: asyncio.run(elsewhere())) == 2
        await client.app.close()

    asyncio.run(main())


def quietly(work: Callable[[], Any]) -> Any:
    """Run what leaves a connection on a loop that has ended: Python warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return work()
        finally:
            gc.collect()


class Arguments(Mapping[str, int]):
    """Arguments that notice in which thread they are read."""

    def __init__(self) -> None:
        self.read_in: set[int] = set()

    def __iter__(self) -> Iterator[str]:
        self.read_in.add(threading.get_ident())
        yield "number"

    def __getitem__(self, name: str) -> int:
        return 7

    def __len__(self) -> int:
        return 1


def test_arguments_are_read_in_the_thread_of_their_caller(client):
    async def elsewhere(arguments: Arguments) -> int:
        await client.enqueue_many([arguments])
        client_thread = threading.get_ident()
        assert arguments.read_in == {client_thread}
        return client_thread

    async def main() -> None:
        await client.enqueue(1)  # binds this loop
        there = Arguments()
        thread = await asyncio.to_thread(in_thread, lambda: asyncio.run(elsewhere(there)))
        assert thread != threading.get_ident()
        await elsewhere(Arguments())
        await client.app.close()

    asyncio.run(main())
    sync = Arguments()
    client.enqueue_many_sync([sync])
    assert sync.read_in == {threading.get_ident()}


async def enqueue_and_wait(task: Any, number: int) -> object:
    return await (await task.enqueue(number)).result(20)


def test_one_loop_after_the_other_may_be_used(client):
    def work() -> list[object]:
        found = [asyncio.run(enqueue_and_wait(client, number)) for number in (1, 2)]
        found.append(client.enqueue_sync(3).result_sync(20))
        found.append(asyncio.run(enqueue_and_wait(client, 4)))
        return found

    assert quietly(work) == [1, 2, 3, 4]


def test_a_loop_that_has_stopped_but_was_not_closed_is_not_waited_for(client):
    def work() -> list[object]:
        loops = [asyncio.new_event_loop() for _ in range(2)]
        found = [
            loop.run_until_complete(enqueue_and_wait(client, number))
            for number, loop in enumerate(loops)
        ]
        found.append(client.enqueue_sync(2).result_sync(20))
        found.append(loops[0].run_until_complete(enqueue_and_wait(client, 3)))
        for loop in loops:
            loop.close()
        return found

    assert quietly(work) == [0, 1, 2, 3]


def test_what_is_in_memory_outlives_the_loop_that_put_it_there(store):
    app = Holdfast("memory:")
    work = declare(app)

    async def put() -> Any:
        return await work.enqueue(1)

    handle = asyncio.run(put())
    assert asyncio.run(handle.get()).arguments() == {"number": 1}
    assert work.enqueue_sync(2).id
    app.close_sync()


# --- owning the store --------------------------------------------------------------------------


def test_an_application_may_own_its_store(store):
    app = Holdfast(store, own=True)
    work = declare(app)
    first = work.enqueue_sync(1)
    other = Holdfast(store, own=True)
    with pytest.raises(DirectoryInUse, match=f"owned by process {os.getpid()}"):
        declare(other).enqueue_sync(2)
    app.close_sync()
    assert asyncio.run(get_and_close(other, first.id)).arguments() == {"number": 1}
    other.close_sync()


async def get_and_close(app: Holdfast, job_id: str) -> Any:
    try:
        return await app.job(job_id).get()
    finally:
        await app.close()


def test_a_closed_application_opens_its_store_again_when_it_is_used(store):
    app = Holdfast(store, own=True)
    work = declare(app)
    ids = []
    for number in range(3):
        ids.append(work.enqueue_sync(number).id)
        app.close_sync()
        app.close_sync()  # harmless
    assert asyncio.run(get_and_close(app, ids[0])).arguments() == {"number": 0}


def test_a_store_that_is_owned_on_a_loop_that_has_ended_says_what_was_forgotten(store):
    # In another process: what was not closed stays locked as long as the process lives.
    script = """
        import asyncio
        from holdfast import Holdfast
        from holdfast.model.errors import WrongLoop
        app = Holdfast("data", own=True)

        @app.task
        def work(number: int) -> None: ...

        async def main(): await work.enqueue(1)

        asyncio.run(main())
        for again in (lambda: asyncio.run(main()), lambda: work.enqueue_sync(1)):
            try:
                again()
            except WrongLoop as error:
                assert "`await app.close()` on that loop before it ends" in str(error)
            else:
                raise AssertionError
        print("said")
    """
    assert run_script(script, store.parent) == "said\n"


# --- nobody there ------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = ClientEngine.__init__.__kwdefaults__
    assert defaults is not None
    assert defaults["patience_seconds"] == 5.0
    monkeypatch.setitem(defaults, "patience_seconds", 0.05)


def test_without_an_owner_the_error_says_what_to_start(store, impatient):
    app = Holdfast(store)
    work = declare(app)
    with pytest.raises(NoOwner, match=r"no process owns the store.*`holdfast --store .* run`"):
        work.enqueue_sync(1)

    async def main() -> None:
        with pytest.raises(NoOwner):
            await work.enqueue(1)
        await app.close()

    in_thread(lambda: asyncio.run(main()))
    app.close_sync()
    assert not store.exists()  # looking for an owner makes nothing


def test_an_owner_that_comes_later_is_found(store, impatient):
    app = Holdfast(store)
    work = declare(app)
    with pytest.raises(NoOwner):
        work.enqueue_sync(1)
    owner = Owner(store)
    assert work.enqueue_sync(2).result_sync(20) == 2
    owner.stop()
    with pytest.raises((NoOwner, EngineClosed)):
        work.enqueue_sync(3)
    app.close_sync()


# --- forks -------------------------------------------------------------------------------------


def run_script(script: str, directory: Path) -> str:
    found = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "ignore::ResourceWarning",
            "-c",
            textwrap.dedent(script),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_forked_child_begins_anew(store, owner):
    script = """
        import asyncio, os, sys
        from holdfast import Holdfast
        app = Holdfast("data")

        @app.task
        def work(number: int) -> int: return number

        assert work.enqueue_sync(1).result_sync(20) == 1  # a connection, a loop and a thread
        children = []
        for number in (2, 3):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    assert work.enqueue_sync(number).result_sync(20) == number
                    app.close_sync()
                    async def main():
                        assert await (await work.enqueue(number)).result(20) == number
                        await app.close()
                    asyncio.run(main())
                    code = 0
                finally:
                    os._exit(code)
            children.append(pid)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        assert work.enqueue_sync(4).result_sync(20) == 4  # the parent's is still its own
        app.close_sync()
        print("forked")
    """
    assert run_script(script, store.parent) == "forked\n"


def test_a_child_forked_inside_a_running_loop_begins_anew(store, owner):
    script = """
        import asyncio, os
        from holdfast import Holdfast
        app = Holdfast("data")

        @app.task
        def work(number: int) -> int: return number

        async def main():
            assert await (await work.enqueue(1)).result(20) == 1
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    assert work.enqueue_sync(2).result_sync(20) == 2
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0
            assert await (await work.enqueue(3)).result(20) == 3
            await app.close()
            print("forked")

        asyncio.run(main())
    """
    assert run_script(script, store.parent) == "forked\n"


def test_a_forked_child_of_an_owner_does_not_own_the_store(store):
    script = """
        import os
        from holdfast import Holdfast
        from holdfast.model.errors import DirectoryInUse
        app = Holdfast("data", own=True)

        @app.task
        def work(number: int) -> int: return number

        work.enqueue_sync(1)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work.enqueue_sync(2)
            except DirectoryInUse:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        work.enqueue_sync(3)
        app.close_sync()
        print("owned")
    """
    assert run_script(script, store.parent) == "owned\n"
