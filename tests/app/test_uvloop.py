"""Other event loops than asyncio's own."""

import asyncio
import sys
from pathlib import Path

import pytest
import uvloop

from holdfast import Holdfast
from holdfast.daemon.worker_settings import event_loop_runner
from holdfast.model.errors import InvalidInput
from holdfast.settings import Settings


def test_uvloop_will_do_for_the_owner_and_for_its_clients(tmp_path: Path):
    app = Holdfast(tmp_path / "data")

    @app.task
    async def add(left: int, right: int) -> int:
        return left + right

    async def main() -> None:
        async with app.running():
            client = Holdfast(app.settings.store)
            handle = await client.enqueue("add", {"left": 1, "right": 2})
            assert await handle.result(20) == 3
            await client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_who_asks_for_uvloop_without_having_it_is_told_where_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(InvalidInput, match=r"event_loop: .*pip install 'holdfast\[fast\]'"):
        event_loop_runner(Settings(event_loop="uvloop"))
