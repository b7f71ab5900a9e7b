"""``holdfast run``."""

from __future__ import annotations

import sys
from collections.abc import Callable

from holdfast.cli.output import echo
from holdfast.daemon.daemon import Daemon
from holdfast.daemon.worker_settings import event_loop_runner
from holdfast.settings import LoadedSettings, Settings
from holdfast.telemetry.log_output import LogOptions, configure_logging
from holdfast.worker.registry import Registry


def run(load: Callable[[], LoadedSettings], registry: Registry) -> int:
    """Run the daemon for an application; return its exit code."""
    loaded = load()
    for warning in loaded.warnings:
        echo(f"holdfast: {warning}", err=True)
    settings = loaded.settings
    _configure(settings)

    async def serve() -> int:
        daemon = Daemon(
            registry,
            settings,
            say=_print_line,
            adopt=registry.adopt,
            origins=loaded.origins,
            reload=load,
            configure=_configure,
        )
        return await daemon.run()

    with event_loop_runner(settings) as runner:
        return runner.run(serve())


def _configure(settings: Settings) -> None:
    configure_logging(LogOptions(settings.log_level, settings.log_format))


def _print_line(line: str) -> None:
    echo(line)
    sys.stdout.flush()
