"""``holdfast``: the commands, and how errors become sentences and exit codes.

Commands import what they need when they run: ``holdfast --help`` must not wait for a web server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

import click

from holdfast import __version__
from holdfast.model import errors
from holdfast.settings import Loaded, Settings, load

from .config import config, every_setting

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_UNAVAILABLE = 1, 2, 3, 4, 5
_EXIT_CODES: tuple[tuple[type[errors.HoldfastError], int], ...] = (
    (errors.InvalidInput, EXIT_USAGE),
    (errors.UnknownTask, EXIT_USAGE),
    (errors.JobNotFound, EXIT_NOT_FOUND),
    (errors.DuplicateId, EXIT_REFUSED),
    (errors.AccessDenied, EXIT_REFUSED),
    (errors.LeaseLost, EXIT_REFUSED),
    (errors.IllegalTransition, EXIT_REFUSED),
    (errors.Unavailable, EXIT_UNAVAILABLE),
    (errors.StorageError, EXIT_UNAVAILABLE),
    (errors.EngineClosed, EXIT_UNAVAILABLE),
)


class Commands(click.Group):
    """A group whose commands end in a sentence and an exit code, never in a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except errors.HoldfastError as error:
            click.echo(f"holdfast: {error}", err=True)
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            # The reader of our output has left; that is how `| head` ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except OSError as error:
            click.echo(f"holdfast: the system says: {error}", err=True)
            ctx.exit(EXIT_UNAVAILABLE)
        except Exception as error:
            if os.environ.get("HOLDFAST_DEBUG"):
                raise
            click.echo(
                f"holdfast: {type(error).__name__}: {error}. This was not foreseen: please report "
                "it; with HOLDFAST_DEBUG=1 it says where it happened",
                err=True,
            )
            ctx.exit(EXIT_FAILED)


def exit_code(error: errors.HoldfastError) -> int:
    """Return the exit code for an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), EXIT_FAILED)


class Context:
    """What every command starts from."""

    def __init__(self, config: str | None, store: str | None) -> None:
        self._config = config
        self._store = store

    def load(self, **flags: object) -> Loaded:
        """Read the settings, with these flags on top."""
        flags.setdefault("store", self._store)
        return load(self._config, environ=os.environ, flags=flags)

    def settings(self, **flags: object) -> Settings:
        """Return the settings, with these flags on top."""
        return self.load(**flags).settings


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
@click.option("--config", metavar="FILE", help="Settings file (default: ./configs/default.yaml).")
@click.option("--store", metavar="PATH", help="Where work is kept (default: ./data).")
@click.pass_context
def main(ctx: click.Context, config: str | None, store: str | None) -> None:
    """Work held under a lease: a durable job queue without a server."""
    ctx.obj = Context(config, store)


@main.command()
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("-w", "--workers", type=int, help="How many jobs run at once (8).")
@click.option("-t", "--timeout", metavar="DURATION", help="Time-out of a task (3s).")
@click.option(
    "-s",
    "--snapshot",
    "--snapshot-interval",
    "snapshot_interval",
    metavar="DURATION",
    help="How often to look whether a snapshot is worth it (2s).",
)
@click.option("--queues", help="Queues to serve, with slots if you like: mail:8,slow:2.")
@click.option("--queue", "queue", multiple=True, help="A queue to serve; may be repeated.")
@click.option("--processes", type=int, help="Worker processes in all (1).")
@click.option("--run-seconds", metavar="DURATION", help="Stop by itself after this long.")
@click.option("--drain-seconds", metavar="DURATION", help="How long a stop waits (30s).")
@click.option("--lease-seconds", metavar="DURATION", help="How long a claim lasts (30s).")
@click.option("--max-attempts", type=int, help="Runs in all before a job is dead (3).")
@click.option("--metrics-port", help="Port of /metrics and /health; 0 any, off none (9090).")
@click.option("--sync", type=click.Choice(["always", "interval", "off"]), help="When to fsync.")
@click.option(
    "--history",
    type=click.Choice(["required", "anew"]),
    help="Begin anew when the file of finished work is damaged or missing.",
)
@click.option("--log-level", help="debug, info, warning or error (info).")
@click.option("--log-format", help="console, json or auto (auto).")
@click.pass_obj
def run(context: Context, /, app: str | None, queue: tuple[str, ...], **flags: object) -> None:
    """Own the store and work, until told to stop.

    MODULE:APP is your application, such as shop.jobs:app or jobs.py. Without it the built-in
    simulated work is served. SIGTERM and Ctrl-C drain and stop; a second one stops at once;
    SIGHUP reads the settings again. Every setting is a flag too: see holdfast config show.
    """
    from . import run as running  # noqa: PLC0415 - a web server and more

    if queue:
        if flags.get("queues"):
            raise errors.InvalidInput("queues", "give --queues or --queue, not both")
        flags["queues"] = ",".join(queue)
    code = running.run(lambda: context.load(**flags), app)
    sys.stdout.flush()
    raise SystemExit(code)


@main.command()
@click.option("-f", "--file", "file", type=click.File("rb"), default="-", help="- is stdin.")
@click.option("--app", metavar="MODULE:APP", help="Check against this application's tasks.")
@click.option("--skip-duplicates", is_flag=True, help="Leave out ids that exist; take the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print the ids as JSON.")
@click.pass_obj
def enqueue(
    context: Context,
    file: IO[bytes],
    app: str | None,
    *,
    skip_duplicates: bool,
    as_json: bool,
) -> None:
    """Enqueue jobs from a file: a JSON array, one object, or an object per line.

    All of them or none. Works while the daemon runs, and without it.
    """
    from . import jobs  # noqa: PLC0415

    jobs.enqueue(context.settings(), file.read(), app, skip=skip_duplicates, as_json=as_json)


@main.command()
@click.option("--watch", is_flag=True, help="Show it again and again.")
@click.option("--interval", default="1s", metavar="DURATION", help="How often, with --watch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def status(context: Context, *, watch: bool, interval: str, as_json: bool) -> None:
    """Count the jobs: pending, in flight, completed, dead."""
    from . import jobs  # noqa: PLC0415

    jobs.status(context.settings(), watch=watch, interval=interval, as_json=as_json)


@main.group("jobs", cls=Commands)
def jobs_group() -> None:
    """Look at jobs."""


@jobs_group.command("show")
@click.argument("job_id", metavar="ID")
@click.option("--tenant", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def jobs_show(context: Context, job_id: str, tenant: str, *, as_json: bool) -> None:
    """Show one job: state, attempts, lease, last error."""
    from . import jobs  # noqa: PLC0415

    jobs.show(context.settings(), job_id, tenant, as_json=as_json)


@main.command("dump")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def dump_store(context: Context, file: Path) -> None:
    """Write everything that the store keeps into FILE: a backup, or to move it.

    Works while the daemon runs, as of one moment, and without it.
    """
    from . import dumps  # noqa: PLC0415

    dumps.dump(context.settings(), file)


@main.command("load")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def load_store(context: Context, file: Path) -> None:
    """Make a new store (--store) of a dump. A dump that is not whole is refused."""
    from . import dumps  # noqa: PLC0415

    dumps.load(context.settings(), file)


@main.group("journal", cls=Commands)
def journal_group() -> None:
    """Look into the log of a store, or save what is whole of a damaged one."""


@journal_group.command("verify")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def journal_verify(context: Context, *, as_json: bool) -> None:
    """Check every frame of log and snapshots; exit 1 if anything is damaged."""
    from . import journal  # noqa: PLC0415

    raise SystemExit(journal.verify(context.settings(), as_json=as_json))


@journal_group.command("dump")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--snapshot", is_flag=True, help="Print the newest snapshot instead.")
@click.pass_obj
def journal_dump(context: Context, *, as_json: bool, snapshot: bool) -> None:
    """Print every record of the log."""
    from . import journal  # noqa: PLC0415

    journal.dump(context.settings(), as_json=as_json, snapshot=snapshot)


@journal_group.command("salvage")
@click.argument("target", metavar="NEW_DIRECTORY")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def journal_salvage(context: Context, target: str, *, as_json: bool) -> None:
    """Copy everything that is whole into a new directory. The damaged one is left as it is."""
    from . import journal  # noqa: PLC0415

    journal.salvage(context.settings(), target, as_json=as_json)


main.add_command(config)
every_setting(run)
