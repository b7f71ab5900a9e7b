"""The limits of the machine, measured in the same round as everything else."""

import os
import time
import zlib
from pathlib import Path

import msgspec

from holdfast.model.effects import Enqueued
from holdfast.model.job import Job

RECORD = os.urandom(300)


def _latencies(directory: Path, seconds: float, *, append: bool) -> list[float]:
    path = directory / "limit"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_at = 0
        if not append:
            os.posix_fallocate(fd, 0, 64 << 20)
        os.fsync(fd)
        taken: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            start = time.perf_counter()
            os.pwrite(fd, RECORD, write_at)
            os.fdatasync(fd)
            taken.append(time.perf_counter() - start)
            write_at += len(RECORD)
        return taken
    finally:
        os.close(fd)
        path.unlink()


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Measure one fdatasync after a small write, and encoding."""
    append = sorted(_latencies(directory, seconds, append=True))
    preallocated = sorted(_latencies(directory, seconds, append=False))
    job = Job("0" * 36, "default", "", "default", "t", b"x" * 200, 0, 3, 2**50, 2**50, 2**30)
    effects = [Enqueued(2**50, job)] * 100
    encoder = msgspec.msgpack.Encoder()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds / 2:
        zlib.crc32(encoder.encode(effects))
        count += len(effects)
    encode_rate = count / (time.perf_counter() - start)
    return {
        "fdatasync_per_second": len(append) / sum(append),
        "fdatasync_p50_us": append[len(append) // 2] * 1e6,
        "fdatasync_p99_us": append[len(append) * 99 // 100] * 1e6,
        "preallocated_fdatasync_per_second": len(preallocated) / sum(preallocated),
        "preallocated_fdatasync_p50_us": preallocated[len(preallocated) // 2] * 1e6,
        "encode_and_crc_per_second": encode_rate,
    }
