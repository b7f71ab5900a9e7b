"""A store is ours, or it is refused: directories, files, links, sockets."""

import asyncio
import contextlib
import os
import shlex
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from holdfast.engines import ownership, peer_credentials
from holdfast.engines.client import socket_endpoint
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.samples.store import SqliteSamples
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.peer_credentials import Peer, peer_of
from holdfast.engines.read_models.sqlite_file import SqliteFile
from holdfast.model.errors import HoldfastError, StoreNotOurs
from holdfast.model.job import NewJob
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.model.samples import QueueDepth, QueueFlow, QueueSample, SampleQuery, Tier
from holdfast.settings import Settings
from holdfast.stores.opening import open_client, open_readonly, own_journal

MYSELF = os.geteuid()
STRANGER = 60_123
Give = Callable[[Path], None]
TABLE = ReadModel(name="t", columns={"id": ColumnType.TEXT}, key=("id",))


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Returns what makes a file another user's; without the right to do so, we become another."""

    def give(path: Path) -> None:
        if MYSELF == 0:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return give


@pytest.fixture
def mask() -> object:
    old = os.umask(0o002)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def used(root: Path) -> None:
    """Use a store so that it has all of its files."""
    engine = await JournalEngine.open(root)
    await engine.enqueue([NewJob(task="t", id="a")])
    await engine.compact()
    await engine.close()


async def opens(root: Path) -> None:
    await (await JournalEngine.open(root)).close()


@pytest.mark.usefixtures("mask")
async def test_whatever_the_umask_nobody_else_can_open_a_new_store(tmp_path):
    root = tmp_path / "parent" / "data"
    await used(root)
    SqliteFile(str(root / "rm.sqlite"), TABLE).close()
    assert [mode(one) for one in (root, root / "log", root / "snapshots")] == [0o700] * 3
    files = [one for one in root.rglob("*") if one.is_file()]
    assert {one.name: oct(mode(one)) for one in files} == {one.name: "0o600" for one in files}
    assert not mode(root.parent) & 0o022


@pytest.mark.parametrize("part", ["", "log", "snapshots"])
async def test_an_old_store_of_ours_that_others_can_write_in_is_mended(tmp_path, part):
    root = tmp_path / "data"
    await used(root)
    (root / part).chmod(0o2777)
    await opens(root)
    assert mode(root / part) & 0o777 == 0o700


async def test_files_of_ours_that_others_can_write_are_mended(tmp_path):
    root = tmp_path / "data"
    await used(root)
    for one in (root / "LOCK", root / "cold.sqlite", *(root / "snapshots").iterdir()):
        one.chmod(0o660)  # as a volume with an fsGroup does
    await opens(root)
    assert {mode(one) for one in root.rglob("*") if one.is_file()} == {0o600}


@pytest.mark.usefixtures("mask")
@pytest.mark.parametrize("name", ["make_directory", "PRIVATE_FILE"])
async def test_control_with_modes_by_the_umask_others_can_open_it(tmp_path, monkeypatch, name):
    as_before = {"make_directory": Path.mkdir, "PRIVATE_FILE": 0o666}[name]
    monkeypatch.setattr(ownership, name, as_before)
    monkeypatch.setattr(ownership, "directory_problem", lambda _path: None)
    with pytest.raises(AssertionError):
        await test_whatever_the_umask_nobody_else_can_open_a_new_store(tmp_path)


async def test_control_without_a_look_at_modes_nothing_is_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "directory_problem", lambda _path: None)
    monkeypatch.setattr(ownership, "too_wide", lambda _found: False)
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError):
        await test_an_old_store_of_ours_that_others_can_write_in_is_mended(tmp_path, "log")
    with pytest.raises(AssertionError):
        await test_files_of_ours_that_others_can_write_are_mended(tmp_path / "other")


async def test_a_directory_with_other_things_in_it_is_refused_with_the_command(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").touch()
    root.chmod(0o777)
    with pytest.raises(StoreNotOurs) as refused:
        await opens(root)
    assert ownership.named(MYSELF) in str(refused.value)
    assert refused.value.command == f"chmod go-w {root}"
    assert list(root.iterdir()) == [root / "README.md"] or not (root / "LOCK").exists()
    subprocess.run(shlex.split(refused.value.command), check=True)  # noqa: ASYNC221
    await opens(root)


async def test_a_sticky_directory_is_never_mended_and_a_store_in_it_is_used(tmp_path):
    root = tmp_path / "tmp"
    root.mkdir()
    root.chmod(0o1777)
    with pytest.raises(StoreNotOurs) as refused:
        await opens(root)
    assert f"HOLDFAST_STORE={root}/holdfast" in refused.value.command
    assert mode(root) == 0o1777
    await opens(root / "holdfast")


READ = ["", "log", "snapshots", "cold.sqlite", "snapshots/*"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", [*READ, "LOCK", "log/*"])
async def test_what_belongs_to_another_user_is_refused(tmp_path, give_away, part):
    root = tmp_path / "data"
    await used(root)
    given = max(root.glob(part)) if part else root
    give_away(given)
    with pytest.raises(StoreNotOurs) as refused:
        await opens(root)
    assert str(given).startswith(refused.value.path)
    assert "uid" in refused.value.owner
    assert refused.value.command.startswith("sudo ")


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", READ)
async def test_what_belongs_to_another_user_is_not_read_either(tmp_path, give_away, part):
    root = tmp_path / "data"
    await used(root)
    give_away(max(root.glob(part)) if part else root)
    with pytest.raises(StoreNotOurs):
        await open_readonly(Settings(store=str(root)))


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
async def test_a_planted_file_of_sqlite_is_refused(tmp_path, give_away, suffix):
    root = tmp_path / "data"
    await used(root)
    planted = root / f"cold.sqlite{suffix}"
    planted.write_bytes(b"forged")
    give_away(planted)
    with pytest.raises(StoreNotOurs):
        await opens(root)


@pytest.mark.parametrize(
    "name", ["LOCK", "cold.sqlite", "cold.sqlite-wal", "events.sqlite", "log/x"]
)
async def test_a_link_is_never_followed(tmp_path, name):
    root, victim = tmp_path / "data", tmp_path / "victim"
    await used(root)
    victim.write_text("precious")
    name = max((root / "log").iterdir()).relative_to(root) if name == "log/x" else name
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(victim)
    with pytest.raises(StoreNotOurs) as refused:
        await opens(root)
    assert refused.value.command == f"rm {root / name}"
    assert victim.read_text() == "precious"


async def test_control_a_lock_that_follows_links_empties_their_target(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.engines.journal.wal.disk._NO_LINKS", 0)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await test_a_link_is_never_followed(tmp_path, "LOCK")


async def test_control_without_the_check_of_owners_a_forged_file_is_used(
    tmp_path, give_away, monkeypatch
):
    monkeypatch.setattr(ownership, "is_trusted", lambda _uid: True)
    with pytest.raises(pytest.fail.Exception):
        await test_what_belongs_to_another_user_is_refused(tmp_path, give_away, "snapshots/*")


async def test_a_link_to_a_directory_of_ours_is_used_and_another_users_link_is_not(
    tmp_path, give_away
):
    root = tmp_path / "data"
    root.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    await opens(root)
    give_away(root)
    with pytest.raises(StoreNotOurs):
        await opens(root)


async def test_snapshots_elsewhere_are_checked_too(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    settings = Settings(store=str(tmp_path / "data"), snapshot_path=str(elsewhere / "s.json"))
    await (await own_journal(settings)).close()
    (elsewhere / "snapshots").chmod(0o1777)
    with pytest.raises(StoreNotOurs, match="elsewhere/snapshots"):
        await own_journal(settings)


def test_the_group_of_root_is_trusted_and_no_other(tmp_path):
    """OpenShift: an arbitrary user, in the group of root, in a directory of root."""

    def found(uid: int, gid: int, permissions: int) -> os.stat_result:
        return os.stat_result((stat.S_IFDIR | permissions, 1, 1, 1, uid, gid, 0, 0, 0, 0))

    assert not ownership.others_can_write(found(0, 0, 0o775))
    assert ownership.others_can_write(found(0, 0, 0o777))
    assert ownership.others_can_write(found(0, 2000, 0o2775))
    assert not ownership.others_can_write(found(1000, 1000, 0o755))


def test_read_models_are_checked_too(tmp_path, give_away):
    file = tmp_path / "t_1.sqlite"
    file.touch(0o666)
    SqliteFile(str(file), TABLE).close()
    assert mode(file) == 0o600
    give_away(file)
    with pytest.raises(StoreNotOurs):
        SqliteFile(str(file), TABLE)


EVERYTHING = SampleQuery((), Tier.SAMPLE, 0, 10, 1)
SAMPLE = {"default": QueueSample(QueueDepth(), QueueFlow(), 1.0)}


async def test_samples_are_checked_too_and_left_out(tmp_path, give_away):
    """They are expendable: the store works without those of a file that is not ours."""
    file = tmp_path / "samples.sqlite"
    file.touch(0o666)
    samples = SqliteSamples(str(file))
    await samples.add(1, SAMPLE)
    await samples.close()
    assert mode(file) == 0o600
    before = file.read_bytes()
    give_away(file)
    again = SqliteSamples(str(file))
    await again.add(2, SAMPLE)
    assert await again.read(EVERYTHING) == {}, "nothing of another user's is read"
    await again.close()
    assert file.read_bytes() == before, "or written"


async def test_control_without_the_check_samples_of_others_are_used(
    tmp_path, give_away, monkeypatch
):
    monkeypatch.setattr(ownership, "is_trusted", lambda _uid: True)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_read_models_are_checked_too(tmp_path, give_away)
    with pytest.raises(AssertionError):
        await test_samples_are_checked_too_and_left_out(tmp_path, give_away)


def test_where_files_have_no_owners_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "geteuid")  # as on Windows
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    disk = LocalDisk(tmp_path / "data")
    disk.lock()
    disk.unlock()
    assert disk.ownership_problems() == []


# --- sockets ------------------------------------------------------------------------------------


class Listener:
    """A process that listens, and keeps what it is sent."""

    def __init__(self, path: Path) -> None:
        self.got = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _address = self._socket.accept()
                connected.settimeout(5)
                with contextlib.suppress(OSError):
                    self.got += connected.recv(1_000)
                connected.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


def test_the_system_says_who_listens(tmp_path):
    path = tmp_path / "s"
    listener = Listener(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert peer_of(client, str(path)) == Peer(os.geteuid(), os.getpid())
    listener.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_nothing_is_sent_to_a_process_of_another_user(tmp_path, monkeypatch, run):
    listener = Listener(tmp_path / "holdfast.sock")
    asked: list[object] = []

    def stranger(sock: peer_credentials.ConnectedSocket, path: str) -> Peer:
        asked.append(peer_of(sock, path))
        return Peer(STRANGER, 1)

    monkeypatch.setattr(peer_credentials, "peer_of", stranger)

    async def ask() -> None:
        client = ClientEngine(str(tmp_path / "holdfast.sock"), patience_seconds=0.2)
        try:
            await client.enqueue([NewJob(task="t", payload={"secret": 1})])
        finally:
            await client.close()

    with pytest.raises(HoldfastError) as refused:
        run(ask())
    listener.close()
    assert asked == [Peer(os.geteuid(), os.getpid())], "every loop can ask"
    assert listener.got == b"", "something was sent"
    assert isinstance(refused.value, StoreNotOurs)
    assert f"uid {STRANGER}" in str(refused.value)


def test_control_a_client_that_does_not_ask_sends_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(socket_endpoint, "refuse_stranger", lambda _sock, _path: None)
    with pytest.raises(AssertionError):
        test_nothing_is_sent_to_a_process_of_another_user(tmp_path, monkeypatch, asyncio.run)


async def test_a_client_does_not_even_connect_in_a_directory_of_another_user(tmp_path, give_away):
    root = tmp_path / "data"
    root.mkdir(mode=0o700)
    await (await open_client(Settings(store=str(root)))).close()
    give_away(root)
    with pytest.raises(StoreNotOurs):
        await open_client(Settings(store=str(root)))
