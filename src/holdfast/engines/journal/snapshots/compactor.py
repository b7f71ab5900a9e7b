"""The compacting process: ``python -m holdfast.engines.journal.snapshots.compactor``.

It reads a request as JSON from its standard input, writes the result as JSON to its standard
output, and exits when its owner does: the owner keeps the input open.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import msgspec

from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.errors import StorageError

from .compaction import CompactionRequest, CompactionResult, compact


async def compact_in_process(request: CompactionRequest) -> CompactionResult:
    """Have another process do the compaction; raise ``StorageError`` if it could not."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise StorageError("the compacting process has no pipes")
    try:
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        await process.stdin.drain()
        answer, complaint = await asyncio.gather(process.stdout.read(), process.stderr.read())
        status = await process.wait()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    finally:
        process.stdin.close()
    if status != 0:
        lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise StorageError(f"compaction failed and will be tried again: {lines[-1]}")
    try:
        # The last line: anything printed by the interpreter's start-up precedes it.
        return msgspec.json.decode(answer.splitlines()[-1], type=CompactionResult)
    except (IndexError, msgspec.MsgspecError) as error:
        raise StorageError(f"the compacting process gave no answer ({error})") from None


def _exit_with_owner() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Do one compaction."""
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=CompactionRequest)
    threading.Thread(target=_exit_with_owner, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(10)  # the owner's event loop goes first
    status = 0
    try:
        answer = compact(LocalDisk(request.root, snapshots=request.snapshots), request)
        os.write(1, b"\n" + msgspec.json.encode(answer) + b"\n")
    except Exception as error:  # noqa: BLE001 - the owner reads the last line
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        status = 1
    os._exit(status)  # a normal exit would wait for the reading thread


if __name__ == "__main__":
    main()
