"""Every reader of outside bytes answers or raises a typed error, whatever the bytes."""

import asyncio
import io
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engines.dump.reading import read_dump
from holdfast.engines.journal.samples.store import SqliteSamples
from holdfast.model.catalog_document import types_of
from holdfast.model.errors import HoldfastError
from holdfast.model.filter_grammar import compile_filter
from holdfast.model.samples import QueueDepth, QueueFlow, QueueSample, SampleQuery, Tier
from holdfast.model.visible_text import visible
from holdfast.settings import read
from holdfast.settings.yaml_text import parse_yaml
from holdfast.worker.schedules import Schedule

from .test_hostile_dumps import GOOD, HEAD, dump_of

SECONDS = float(os.environ.get("HOLDFAST_TEST_FUZZ_SECONDS", "0")) / 9
RUNS = 400
"""By default a number of inputs, however long a busy machine takes for them."""


def read_records(data: bytes) -> None:
    for _batch in read_dump(dump_of(data)):
        pass


def read_file(data: bytes) -> None:
    for _batch in read_dump(io.BytesIO(data)):
        pass


def read_catalog(data: bytes) -> None:
    try:
        content = parse_yaml(data.decode("utf-8", "replace"))
    except ValueError:
        return
    types_of(content, "fuzzed")


def read_environment(data: bytes) -> None:
    names = ("QUEUES", "STORE", "WORKER_COUNT", "FLAGS", "LEASE_SECONDS", "KEEP_LOG_BYTES")
    text = data.decode("utf-8", "surrogateescape")
    visible(str(read(None, environ={f"HOLDFAST_{name}": text for name in names}).problems))


def read_settings(suffix: str) -> Callable[[bytes], None]:
    """Return the reader of a whole settings file."""

    def read_one(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / f"settings{suffix}"
            file.write_bytes(data)
            report = read(str(file), environ={})
        assert report.problems or report.loaded is not None
        visible(str(report.problems) + str(report.warnings))

    return read_one


SAMPLED = {"mail": QueueSample(QueueDepth(3, 1, 2), QueueFlow(), 10.0)}
EVERY_POINT = SampleQuery((), Tier.SAMPLE, 0, 1 << 60, 1_000_000)


def samples_file() -> bytes:
    """Return a file of samples as a journal writes it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "samples.sqlite"
        asyncio.run(_sampled(file))
        return file.read_bytes()


def read_samples(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "samples.sqlite"
        file.write_bytes(data)
        file.chmod(0o600)
        asyncio.run(_sampled(file))


async def _sampled(file: Path) -> None:
    samples = SqliteSamples(str(file))
    try:
        await samples.read(EVERY_POINT)
        await samples.add(1_800_000_000_000_000, SAMPLED)
        await samples.read(EVERY_POINT)
    finally:
        await samples.close()


def read_filter(data: bytes) -> None:
    compile_filter(data.decode("utf-8", "replace"), 1)


def read_cron(data: bytes) -> None:
    Schedule(name="a", expression=data.decode("utf-8", "replace"), task="t")


READERS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "records of a dump": (
        read_records,
        [msgspec.msgpack.encode([HEAD, one]) for one in GOOD.values()],
    ),
    "a dump": (read_file, [dump_of(msgspec.msgpack.encode([HEAD])).getvalue()]),
    "a catalog": (
        read_catalog,
        [b"events: {book.opened: {entity: book, fields: {book_id: string, page: integer}}}"],
    ),
    "the environment": (read_environment, [b"mail:8,slow:2", b"postgresql://u:p@h/db", b"3s"]),
    "settings in YAML": (
        read_settings(".yaml"),
        [
            b"store: ./data\nworker_count: 8\nlease_seconds: 1h30m\nqueues: {mail: 2, slow: 1}\n",
            b"flags: [a, b]\nmetrics_port: 9100\nkeep_payload: off\nbackoff_jitter: 0.5\n",
        ],
    ),
    "settings in TOML": (
        read_settings(".toml"),
        [
            b'store = "./data"\nworker_count = 8\nlease_seconds = "1h30m"\n[queues]\nmail = 2\n',
            b'flags = ["a", "b"]\nmetrics_port = 9100\nrun_seconds = 2027-01-15T12:00:00Z\n',
        ],
    ),
    "a filter": (
        read_filter,
        [b'queue:mail,x age>2h -reason:timeout payload.a."b"=[1] "text"', b"attempts:2-5 died<1d"],
    ),
    "a file of samples": (read_samples, [samples_file()]),
    "cron": (
        read_cron,
        [b"*/5 0-6 1,15 JAN MON#2", b"0 0 L * *", b"30 2 * * 5L"],
    ),
}


def mutated(seeds: list[bytes], choose: random.Random) -> bytes:
    data = bytearray(choose.choice(seeds))
    for _change in range(choose.randint(1, 6)):
        at = choose.randrange(len(data) + 1)
        kind = choose.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = choose.randrange(256)
        elif kind == 1:
            data[at:at] = choose.randbytes(choose.randint(1, 5))
        elif kind == 2:
            del data[at : at + choose.randint(1, 8)]
        else:
            part = data[at : at + choose.randint(1, 20)]
            data[at:at] = part * choose.choice([1, 2, 50])
    return bytes(data)


def inputs(seeds: list[bytes], choose: random.Random) -> Iterator[bytes]:
    until = time.monotonic() + SECONDS
    for number in range(RUNS if not SECONDS else 1 << 62):
        if SECONDS and time.monotonic() > until:
            assert number > RUNS
            return
        yield mutated(seeds, choose)


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused_with_a_typed_error(name):
    read_one, seeds = READERS[name]
    seed = random.SystemRandom().getrandbits(32)
    for data in inputs(seeds, random.Random(seed)):
        try:
            read_one(data)
        except HoldfastError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} for {data[:500]!r}") from error


def test_control_a_reader_that_lets_a_raw_error_through_is_found(monkeypatch):
    broken = lambda data: msgspec.msgpack.decode(data, type=list[int]) and None
    monkeypatch.setitem(READERS, "a dump", (broken, READERS["a dump"][1]))
    with pytest.raises(AssertionError, match="seed"):
        test_any_bytes_are_read_or_refused_with_a_typed_error("a dump")
