"""A process that feeds a store until it is killed, saying on its output how far it came."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.engines.journal.wal.disk import LocalDisk
from tests.engines.journal.history.world import World


def main() -> None:
    disk = LocalDisk(sys.argv[1])
    disk.lock()
    store = SqliteHistory.open(disk.database())
    world = World()
    world.seq = store.checkpoint
    while True:
        for _ in range(40):
            name = f"j{world.seq}"
            if world.seq % 2:
                world.done(name)
            else:
                world.dead(name, scope=f"s{world.seq % 7}")
        store.feed(world.recorded, world.seq)
        os.write(1, f"{store.checkpoint}\n".encode())
        world.recorded.clear()
        world.jobs.clear()


if __name__ == "__main__":
    main()
