"""``holdfast run``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import click
import structlog

from holdfast.interfaces.daemon import Daemon
from holdfast.interfaces.opening import looping
from holdfast.runtime.definition import Definition
from holdfast.runtime.loading import load_definition
from holdfast.settings import Loaded, Settings


def run(load: Callable[[], Loaded], app: str | None, definition: Definition | None = None) -> int:
    """Run the daemon for an application, named or at hand; return its exit code."""
    loaded = load()
    for warning in loaded.warnings:
        click.echo(f"holdfast: {warning}", err=True)
    settings = loaded.settings
    configure_logging(settings)
    if definition is None:
        definition = Definition() if app is None else load_definition(app)
    served = definition

    async def serve() -> int:
        daemon = Daemon(
            served,
            settings,
            say=_say,
            adopt=served.adopt,
            origins=loaded.origins,
            reload=load,
            configure=configure_logging,
        )
        return await daemon.run()

    with looping(settings) as runner:
        return runner.run(serve())


def configure_logging(settings: Settings) -> None:
    """Send log records to standard error, one line each, for people or as JSON."""
    as_json = settings.log_format == "json" or (
        settings.log_format == "auto" and not sys.stderr.isatty()
    )
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast").setLevel(settings.log_level.upper())


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
