"""``holdfast``: the commands, each in its module.

Modules import what they need when a command runs, so that ``holdfast --help`` is fast.
"""

from __future__ import annotations

import os
import sys

import click

from holdfast import __version__
from holdfast.model import errors

from .exit_codes import MEANINGS
from .group import CommandContext, CommandGroup, WithEverySetting

_EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code}  {meaning}" for code, meaning in MEANINGS.items()
)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(__version__, prog_name="holdfast")
@click.option("--config", metavar="FILE", help="Settings file (default: ./configs/default.yaml).")
@click.option("--store", metavar="PATH", help="Where jobs are stored (default: ./data).")
@click.option("--app", metavar="MODULE:APP", help="Use the store that this application names.")
@click.pass_context
def main(ctx: click.Context, config: str | None, store: str | None, app: str | None) -> None:
    """A durable job queue that needs no server."""
    ctx.obj = CommandContext(config, store, app)
    from holdfast.engines.structured_log import quieten  # noqa: PLC0415 - help needs none

    quieten("psycopg")  # it logs what a command reports anyway
    if os.environ.get("NO_COLOR"):
        ctx.color = False


@main.command(cls=WithEverySetting)
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("-w", "--workers", type=int, help="How many jobs run at once (8).")
@click.option("-t", "--timeout", metavar="DURATION", help="Timeout of a task (3s).")
@click.option(
    "-s",
    "--snapshot",
    "--snapshot-interval",
    "snapshot_interval",
    metavar="DURATION",
    help="How often to write a snapshot, if anything changed (by the size of the log).",
)
@click.option("--queues", help="Queues to serve, optionally with slots: mail:8,slow:2.")
@click.option("--queue", "queue", multiple=True, help="A queue to serve; may be repeated.")
@click.option(
    "--projection",
    "projection",
    multiple=True,
    help="A projection to apply, and nothing else; may be repeated.",
)
@click.option("--processes", type=int, help="Number of worker processes (1).")
@click.option("--run-seconds", metavar="DURATION", help="Stop after this time.")
@click.option("--drain-seconds", metavar="DURATION", help="How long a stop waits for jobs (30s).")
@click.option("--lease-seconds", metavar="DURATION", help="How long a claim lasts (30s).")
@click.option("--max-attempts", type=int, help="Total runs before a job is dead (3).")
@click.option("--metrics-port", help="Port of /metrics and /health; 0: any, off: none (9090).")
@click.option("--api-port", help="Port of the HTTP API; 0: any, off: none (off).")
@click.option("--api-host", metavar="ADDRESS", help="Address of the HTTP API (127.0.0.1).")
@click.option("--sync", type=click.Choice(["always", "interval", "off"]), help="When to fsync.")
@click.option(
    "--history",
    type=click.Choice(["required", "anew"]),
    help="anew: start a new history file if it is damaged or missing.",
)
@click.option("--log-level", help="debug, info, warning or error (info).")
@click.option("--log-format", help="console, json or auto (auto).")
@click.pass_obj
def run(
    context: CommandContext,
    /,
    app: str | None,
    queue: tuple[str, ...],
    projection: tuple[str, ...],
    **flags: object,
) -> None:
    """Own the store and run jobs until stopped.

    MODULE:APP is your application, such as shop.jobs:app or jobs.py. Its jobs are stored where the
    application says, unless --store names another place. Without it, built-in simulated tasks run.
    SIGTERM and Ctrl-C drain and stop; a second one stops at once; SIGHUP reloads the settings.
    Every setting is a flag too: see holdfast config show.
    """
    from holdfast.worker.registry import Registry  # noqa: PLC0415

    from .commands import run as running  # noqa: PLC0415 - imports a web server

    if queue:
        if flags.get("queues"):
            raise errors.InvalidInput("queues", "give --queues or --queue, not both")
        flags["queues"] = ",".join(queue)
    if projection:
        flags["only_projections"] = ",".join(projection)
    registry = context.registry(app) or Registry()
    code = running.run(lambda: context.load(**flags), registry)
    sys.stdout.flush()
    raise SystemExit(code)


main.lazy_commands = {
    "audit": "audit:audit_group",
    "bench": "bench:bench",
    "catalog": "catalog:catalog_group",
    "chronicle": "chronicle:chronicle_group",
    "completion": "completion:completion",
    "config": "config:config",
    "dead": "dead:dead_group",
    "doctor": "doctor:doctor",
    "dump": "dump:dump_store",
    "enqueue": "status:enqueue",
    "events": "events:events_group",
    "failed": "dead:dead_group",
    "flags": "flags:flags_group",
    "jobs": "jobs:jobs_group",
    "journal": "journal:journal_group",
    "load": "dump:load_store",
    "keys": "keys:keys_group",
    "migrate": "migrate:migrate",
    "move": "move:move_store",
    "operations": "operations:operations_group",
    "outages": "outages:outages_group",
    "projection": "projection_template:projection_group",
    "projections": "projections:projections_group",
    "queues": "queues:queues_group",
    "rebuild": "rebuild:rebuild",
    "replay": "dead:replay",
    "runbook": "runbook:runbook",
    "schedules": "schedules:schedules_group",
    "serve": "serve:serve",
    "status": "status:status",
    "top": "top:top",
    "validate": "status:validate",
    "workers": "workers:workers_group",
}
