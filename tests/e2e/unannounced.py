"""The application of these tests in a daemon that announces itself to nobody."""

import importlib.util
from pathlib import Path

from holdfast.daemon import daemon
from holdfast.daemon.announcer import Announcer


async def _silent(*_args: object, **_options: object) -> None:
    """Leave the registry as it is."""


setattr(daemon, "enter_registry", _silent)  # noqa: B010 - it is not exported
Announcer.beat = _silent  # type: ignore[assignment]

_spec = importlib.util.spec_from_file_location("jobs", Path(__file__).with_name("jobs.py"))
assert _spec is not None
assert _spec.loader is not None
_jobs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_jobs)
app = _jobs.app
