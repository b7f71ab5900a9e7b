"""Owners that are not there, not there yet, or not there any more; clients in the wrong place."""

import asyncio
import os
import warnings
from pathlib import Path

import msgspec
import pytest

from holdfast.daemon.rpc.app import RpcApp
from holdfast.daemon.rpc.dispatch import Dispatcher
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Receipt
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.protocol import messages
from holdfast.http.exchange import HttpResponse
from holdfast.http.listeners import bind_socket
from holdfast.http.server import serving
from holdfast.model.errors import (
    EngineClosed,
    HoldfastError,
    NoOwner,
    TooLarge,
    Unavailable,
    UnknownFormat,
    WrongLoop,
)
from holdfast.testing.conformance.fixture import settle_down

from .rig import LIMITS, Owner, Rig, eventually, jobs_named, rigged, short_directory


async def test_without_an_owner_the_error_says_what_to_start_and_where():
    with short_directory() as directory:
        path = str(directory / "holdfast.sock")
        client = ClientEngine(path, patience_seconds=0.05)
        for call in (
            client.enqueue(jobs_named("a")),
            client.claim(queues=["default"], worker="w", wait_seconds=60),
        ):
            with pytest.raises(NoOwner) as missing:
                await call
            assert path in str(missing.value)
            assert f"holdfast --store {directory} run" in str(missing.value)
        await client.close()


async def test_a_socket_on_which_nobody_listens_is_no_owner_either():
    with short_directory() as directory:
        path = str(directory / "s")
        bind_socket(path).close()
        client = ClientEngine(path, patience_seconds=0.05)
        with pytest.raises(NoOwner):
            await client.counts()
        await client.close()


async def test_what_cannot_be_a_socket_is_said_at_once():
    with short_directory() as directory:
        (directory / "file").touch()
        client = ClientEngine(str(directory / "file" / "s"), patience_seconds=600)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.counts()
        await client.close()


async def test_an_owner_that_comes_in_time_is_waited_for():
    with short_directory() as directory:
        owner = Owner(directory)
        client = ClientEngine(owner.path)
        calls = [asyncio.create_task(client.enqueue(jobs_named(name))) for name in "abc"]
        waiting = asyncio.create_task(client.claim(queues=["later"], worker="w", wait_seconds=60))
        await settle_down()
        await owner.start()
        assert await asyncio.gather(*calls) == [[Receipt(name)] for name in "abc"]
        await client.enqueue(jobs_named("d", queue="later"))
        assert [job.id for job in (await waiting).jobs] == ["d"]
        await client.close()
        await owner.stop()


async def test_a_close_ends_the_wait_for_an_owner():
    with short_directory() as directory:
        client = ClientEngine(str(directory / "s"), patience_seconds=600)
        calls = [
            asyncio.create_task(client.counts()),
            asyncio.create_task(client.claim(queues=["q"], worker="w", wait_seconds=60)),
        ]
        await settle_down()
        await client.close()
        for call in calls:
            with pytest.raises(EngineClosed):
                await call


def test_the_owner_may_restart_between_calls():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        for number in range(3):
            assert await client.enqueue(jobs_named(str(number))) == [Receipt(str(number))]
            await rig.owner.restart()
        assert (await client.counts())["default"].pending == 3
        await client.close()

    rigged(scenario)


def test_a_claim_goes_on_waiting_when_the_owner_restarts():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        waiting = asyncio.create_task(client.claim(queues=["default"], worker="w", wait_seconds=60))
        await settle_down()
        await rig.owner.restart()

        async def waits_again() -> bool:
            return rig.owner.engine._core.waiters.waiting

        await eventually(waits_again)
        await client.enqueue(jobs_named("a"))
        assert [job.id for job in (await waiting).jobs] == ["a"]
        await client.close()

    rigged(scenario)


def test_an_owner_that_has_closed_its_engine_is_as_good_as_none():
    async def scenario(rig: Rig) -> None:
        await rig.owner.engine.close()
        client = rig.new_client(patience_seconds=0.05)
        for call in (client.counts(), client.claim(queues=["q"], worker="w", wait_seconds=0.01)):
            with pytest.raises(NoOwner, match="holdfast run"):
                await call
        patient = rig.new_client()
        asking = asyncio.create_task(patient.enqueue(jobs_named("a")))
        await settle_down()
        await rig.owner.restart()
        assert await asking == [Receipt("a")]
        await client.close()
        await patient.close()

    rigged(scenario)


# --- whoever answers is something else -------------------------------------------------------


class Impostor(RpcApp):
    """Answers everything in its own way."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(None)
        self._response = response

    async def respond(self, *_request: object) -> HttpResponse:
        return self._response


def problem(status: int, **fields: object) -> HttpResponse:
    body = {"title": "t", "status": status, "detail": "why", **fields}
    return HttpResponse(status, messages.PROBLEM_JSON, msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("response", "error", "says"),
    [
        (problem(404, versions=[2, 3]), UnknownFormat, "version of the engine protocol 3"),
        (
            problem(404),
            HoldfastError,
            "404: why. Nothing was done: use one version",
        ),
        (problem(413), TooLarge, "send fewer"),
        (HttpResponse(200, "text/html", b"<html>hello</html>"), Unavailable, "makes no sense"),
        (HttpResponse(404, "text/html", b"<html>no</html>"), Unavailable, "no owner of a store"),
        (HttpResponse(422, messages.MSGPACK, b"\xc1"), Unavailable, "no owner of a store"),
    ],
)
async def test_a_strange_answer_is_a_clear_error(response, error, says):
    with short_directory() as directory:
        path = str(directory / "s")
        async with serving(Impostor(response), sockets=[bind_socket(path)], limits=LIMITS):
            client = ClientEngine(path)
            with pytest.raises(error, match=says) as refused:
                await client.counts()
            assert path in str(refused.value) or error is TooLarge
            await client.close()


async def test_a_verb_of_another_version_is_refused_with_what_to_do():
    """``replay`` was a verb of its own before ``operate``: an older client still sends it."""
    answer = await Dispatcher(MemoryEngine()).answer("replay", b"\x90")
    assert answer.status == messages.NOT_FOUND
    assert b"has no verb 'replay': use one version for both" in answer.body


async def test_answers_that_are_none_leave_a_doubt():
    with short_directory() as directory:
        path = str(directory / "s")
        app = Impostor(HttpResponse(200, messages.MSGPACK, b"\xc1"))
        async with serving(app, sockets=[bind_socket(path)], limits=LIMITS):
            client = ClientEngine(path, patience_seconds=0.05)
            answered = await asyncio.gather(
                client.enqueue(jobs_named("a")), client.validate(), return_exceptions=True
            )
            assert [type(error) for error in answered] == [Unavailable, Unavailable]
            await client.close()


async def test_noise_instead_of_http_leaves_a_doubt():
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SMTP ready\r\n")
        writer.close()

    with short_directory() as directory:
        path = str(directory / "s")
        server = await asyncio.start_unix_server(shout, path)
        client = ClientEngine(path, patience_seconds=0.05)
        with pytest.raises(Unavailable, match="is not reliable"):
            await client.counts()
        await client.close()
        server.close()


# --- the wrong place -------------------------------------------------------------------------


def test_a_client_belongs_to_the_loop_on_which_it_was_first_used():
    with short_directory() as directory:
        client = ClientEngine(str(directory / "s"), patience_seconds=0.01)

        async def use() -> None:
            await client.counts()

        with pytest.raises(NoOwner):
            asyncio.run(use())
        with pytest.raises(WrongLoop, match="event loop on which it was first used"):
            asyncio.run(use())


def reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_there(path: Path) -> bool:
    return path.exists()


def test_a_forked_child_cannot_use_its_parents_client():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        await client.counts()
        ours, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:  # the child: it must leave no other way than this
            said = b"nothing was raised"
            try:
                client.validate().send(None)
            except WrongLoop as error:
                said = str(error).encode()
            finally:
                os.write(theirs, said)
                os._exit(0)
        os.close(theirs)
        reap(pid)
        heard = os.read(ours, 1_000).decode()
        os.close(ours)
        assert "fork" in heard
        assert "make another one" in heard
        assert await client.validate() == [], "its parent still can"
        await client.close()

    rigged(scenario)


def test_a_forked_child_that_closes_leaves_its_parents_connection_alone():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        await client.counts()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                client.close().send(None)
            except StopIteration:
                os._exit(0)
            finally:
                os._exit(1)
        assert reap(pid) == 0
        assert client.requests == 1
        await client.counts()
        assert client.requests == 2
        assert len(rig.owner.app.verbs) == 2, "nothing had to be sent again"
        await client.close()

    rigged(scenario)


def test_the_socket_is_gone_when_its_owner_is():
    async def scenario(rig: Rig) -> None:
        path = Path(rig.owner.path)
        assert is_there(path)
        await rig.owner.stop()
        assert not is_there(path)
        await rig.owner.start()

    rigged(scenario)
