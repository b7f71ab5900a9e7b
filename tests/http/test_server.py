"""Sockets: who may connect, who listens, and how serving ends."""

import asyncio
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from holdfast.daemon.control_socket import control_lock
from holdfast.daemon.rpc.app import RpcApp
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.protocol import messages
from holdfast.engines.socket_path import MAX_PATH_BYTES, socket_path
from holdfast.http import server as serving_module
from holdfast.http.listeners import bind_port, bind_socket
from holdfast.http.server import serving
from holdfast.model.errors import DirectoryInUse, InvalidInput, StorageError
from holdfast.testing.conformance.fixture import settle_down
from tests.engines.client.rig import LIMITS, jobs_named, short_directory

HEALTH = b"GET /health HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def health(_body: bytes) -> tuple[int, str, bytes]:
    return 200, "text/plain", b"fine"


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_this_user_may_connect_whatever_the_umask(umask):
    with short_directory() as directory:
        path = str(directory / "s")
        before = os.umask(umask)
        try:
            with bind_socket(path):
                assert mode(path) == 0o600
        finally:
            os.umask(before)


def test_the_socket_has_its_mode_before_anybody_can_connect(monkeypatch):
    seen: list[int] = []
    original = Path.chmod

    def look(path: Path, bits: int) -> None:
        seen.append(mode(str(path)))
        with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(str(path))
        original(path, bits)

    monkeypatch.setattr(Path, "chmod", look)
    with short_directory() as directory, bind_socket(str(directory / "s")):
        assert seen == [0o600]


def test_a_socket_that_an_owner_left_behind_is_replaced():
    with short_directory() as directory:
        path = str(directory / "s")
        bind_socket(path).close()
        before = Path(path).lstat().st_ino
        with bind_socket(path):
            assert Path(path).lstat().st_ino != before or mode(path) == 0o600


async def test_a_socket_on_which_somebody_listens_is_left_alone():
    with short_directory() as directory:
        path = str(directory / "s")
        app = RpcApp(MemoryEngine(), {})
        async with serving(app, sockets=[bind_socket(path)], limits=LIMITS):
            with pytest.raises(DirectoryInUse, match="stop it first, or be its client"):
                bind_socket(path)
            client = ClientEngine(path)
            assert await client.validate() == []
            await client.close()


def test_a_socket_whose_owner_is_too_busy_to_accept_is_left_alone():
    with short_directory() as directory:
        path = str(directory / "s")
        with bind_socket(path) as busy:
            busy.listen(0)
            with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
                for one in (first, second):
                    one.settimeout(0)
                    one.connect_ex(path)
                with pytest.raises(DirectoryInUse):
                    bind_socket(path)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_what_is_not_a_socket_is_left_alone(make):
    with short_directory() as directory:
        path = directory / "s"
        make(path)
        with pytest.raises(StorageError, match="move it away"):
            bind_socket(str(path))
        assert path.exists()


@pytest.mark.parametrize("path", ["/nowhere/at/all/s", "/tmp/" + "x" * 200, "/tmp/a\0b"])  # noqa: S108
def test_a_path_that_cannot_be_is_a_typed_error(path):
    with pytest.raises(StorageError):
        bind_socket(path)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_port_of_this_machine(host):
    async def main() -> None:
        sock = bind_port(host, 0)
        name = sock.getsockname()
        async with serving(RpcApp(None, {"GET /health": health}), sockets=[sock], limits=LIMITS):
            reader, writer = await asyncio.open_connection(name[0], name[1])
            writer.write(HEALTH)
            assert (await reader.read()).endswith(b"\r\n\r\nfine")
            writer.close()

    if host == "::1" and not socket.has_ipv6:
        return
    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "port", "field"),
    [
        ("192.0.2.7", 0, "port"),
        ("example.org", 0, "host"),
        ("", 0, "host"),
        ("127.0.0.1", 70_000, "port"),
        ("127.0.0.1", "http", "port"),
    ],
)
def test_an_address_that_is_not_of_this_machine_is_refused(host, port, field):
    with pytest.raises(InvalidInput) as refused:
        bind_port(host, port)
    assert refused.value.field == field


def test_a_port_that_is_taken_is_refused():
    with bind_port("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(InvalidInput, match="in use"):
            bind_port("127.0.0.1", first.getsockname()[1])


async def test_signals_are_left_alone():
    with short_directory() as directory:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        path = str(directory / "s")
        async with serving(RpcApp(MemoryEngine()), sockets=[bind_socket(path)], limits=LIMITS):
            during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert during == before


async def test_serving_on_several_sockets_at_once():
    with short_directory() as directory:
        paths = [str(directory / name) for name in "ab"]
        engine = MemoryEngine()
        sockets = [bind_socket(path) for path in paths]
        async with serving(RpcApp(engine), sockets=sockets, limits=LIMITS):
            for path in paths:
                client = ClientEngine(path)
                await client.enqueue(jobs_named(path))
                await client.close()
        assert (await engine.counts())["default"].pending == 2
        assert list(directory.iterdir()) == []


async def test_an_end_does_not_wait_for_claims_that_wait(monkeypatch):
    # Were they waited for, it would be for this long, and the test would run into its time-out.
    monkeypatch.setattr(serving_module, "GRACE_SECONDS", 3_600)

    with short_directory() as directory:
        path = str(directory / "s")
        engine = MemoryEngine()
        client = ClientEngine(path, patience_seconds=0.05)
        async with serving(RpcApp(engine), sockets=[bind_socket(path)], limits=LIMITS):
            waiting = [
                asyncio.create_task(client.claim(queues=["default"], worker="w", wait_seconds=600))
                for _number in range(5)
            ]
            await settle_down()
            assert engine._core.waiters.waiting
        assert not engine._core.waiters.waiting
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await client.close()


async def test_an_end_does_not_wait_for_peers_that_do_nothing():
    with short_directory() as directory:
        path = str(directory / "s")
        async with serving(RpcApp(MemoryEngine()), sockets=[bind_socket(path)], limits=LIMITS):
            _, silent = await asyncio.open_unix_connection(path)
            _, half = await asyncio.open_unix_connection(path)
            half.write(b"POST /engine/v1/enqueue HTTP/1.1\r\nContent-Length: 100\r\n\r\nx")
            await settle_down()
        for writer in (silent, half):
            writer.close()


async def test_requests_that_do_not_end_are_ended(monkeypatch):
    monkeypatch.setattr(serving_module, "GRACE_SECONDS", 0.01)

    ended: list[str] = []

    async def for_ever(_body: bytes) -> tuple[int, str, bytes]:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("in order")
        raise AssertionError

    with short_directory() as directory:
        path = str(directory / "s")
        app = RpcApp(None, {"GET /health": for_ever})
        async with serving(app, sockets=[bind_socket(path)], limits=LIMITS):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(HEALTH)
            await settle_down()
        assert ended == ["in order"]
        assert (await reader.readline()).split()[1] == b"503"
        writer.close()


async def test_a_claim_that_comes_when_it_is_over_is_sent_away():
    async def departure() -> None:
        await asyncio.get_running_loop().create_future()

    app = RpcApp(MemoryEngine())
    app.stop()
    call = messages.ClaimCall(["default"], "w", None, 1, 30.0, 600.0, [])
    body = messages.CLAIM.write_call(call)
    assert (await app.respond("POST", messages.CLAIM.path, body, departure)).status == 503


# --- whose it is -----------------------------------------------------------------------------


def test_of_many_one_is_in_control_and_after_it_another():
    with short_directory() as directory:
        path = str(directory / "s")
        with control_lock(path) as first, control_lock(path) as second:
            assert (first, second) == (True, False)
            with control_lock(path) as third:
                assert not third
        with control_lock(path) as fourth:
            assert fourth


def test_a_copy_that_a_task_made_does_not_stay_in_control():
    with short_directory() as directory:
        path = str(directory / "s")
        (is_up, say_up), (is_over, say_over) = os.pipe(), os.pipe()
        with control_lock(path) as ours:
            assert ours
            if (child := os.fork()) == 0:
                os.close(say_over)
                os.write(say_up, b".")
                os.read(is_over, 1)
                os._exit(0)
        assert os.read(is_up, 1) == b"."
        with control_lock(path) as again:
            assert again
        for number in (is_up, say_up, is_over, say_over):
            os.close(number)
        assert os.waitpid(child, 0) == (child, 0)


def test_a_place_without_room_for_a_lock_is_a_typed_error():
    with pytest.raises(StorageError, match="no lock can be made"), control_lock("/nowhere/s"):
        pass


# --- where the socket is ---------------------------------------------------------------------


def test_the_socket_is_in_the_store(tmp_path, monkeypatch):
    with short_directory() as store:
        assert socket_path(store) == str(store.resolve() / "holdfast.sock")
        assert socket_path(str(store)) == socket_path(store)
        monkeypatch.chdir(store)
        assert socket_path(".") == socket_path(store)
        link = store / "link"
        link.symlink_to(store)
        assert socket_path(link) == socket_path(store)


@pytest.fixture
def place(monkeypatch):
    with short_directory() as directory:
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        yield directory / f"holdfast-{os.getuid()}"


def test_a_long_path_has_its_socket_elsewhere(place):
    long = "/var/lib/" + "x" * 100
    path = Path(socket_path(long))
    assert len(os.fsencode(path)) <= MAX_PATH_BYTES
    assert path.parent == place
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert path == Path(socket_path(long)), "the same for everybody"
    assert path != Path(socket_path(long + "y"))
    with bind_socket(str(path)):
        assert mode(str(path)) == 0o600


def test_the_longest_path_that_fits_and_the_first_that_does_not(place):
    fits = "/" + "x" * (MAX_PATH_BYTES - len("/holdfast.sock") - 1)
    assert socket_path(fits) == f"{fits}/holdfast.sock"
    assert Path(socket_path(fits + "x")).parent == place
    assert Path(socket_path(fits[:-1] + "ü")).parent == place, "bytes count, not characters"


@pytest.mark.parametrize("bits", [0o777, 0o750, 0o701])
def test_a_place_that_others_can_open_is_refused(place, bits):
    place.mkdir()
    place.chmod(bits)
    with pytest.raises(StorageError, match="only this user can open"):
        socket_path("/" + "x" * 200)


def test_a_place_that_is_somebody_elses_is_refused(place, monkeypatch):
    place.mkdir(mode=0o700)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    place.rename(place.parent / f"holdfast-{uid + 1}")
    with pytest.raises(StorageError):
        socket_path("/" + "x" * 200)


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("/")])
def test_a_place_that_is_no_directory_is_refused(place, make):
    make(place)
    with pytest.raises(StorageError):
        socket_path("/" + "x" * 200)
