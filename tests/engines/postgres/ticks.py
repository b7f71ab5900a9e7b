"""An application with a job for every second."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Holdfast, current

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

if TYPE_CHECKING:
    from tests.e2e.ledger import note
else:
    from ledger import note

app = Holdfast()


@app.cron("* * * * * *", overlap="allow")
@app.task
async def tick() -> None:
    note("begin", current().id, current().number)
    note("end", current().id, current().number)
