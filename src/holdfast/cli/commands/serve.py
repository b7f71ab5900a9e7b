"""``holdfast serve``: the HTTP API, as a process of its own."""

from __future__ import annotations

import sys

import click

from holdfast.cli.event_options import app_option
from holdfast.cli.group import CommandContext
from holdfast.cli.output import echo

_LIMIT = click.IntRange(0, 100_000_000)


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="The port to listen on; 0: any free one.",
)
@click.option("--tls-cert", "cert_file", default="", metavar="FILE", help="A certificate, PEM.")
@click.option("--tls-key", "key_file", default="", metavar="FILE", help="Its key, PEM.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name that it answers to, beside addresses and localhost; may be repeated.",
)
@click.option(
    "--metrics-token-file",
    default="",
    metavar="FILE",
    help="A file with a token that /metrics takes, beside keys that may see all counts.",
)
@click.option(
    "--key-rate",
    type=_LIMIT,
    default=60_000,
    show_default=True,
    help="How many requests a minute a key may send, if it has no rate of its own; 0: any number.",
)
@click.option(
    "--tenant-rate",
    type=_LIMIT,
    default=120_000,
    show_default=True,
    help="How many requests a minute the keys of a tenant may send together; 0: any number.",
)
@click.option(
    "--tenant-jobs",
    type=click.IntRange(0, 1_000_000),
    default=0,
    show_default=True,
    help="How many unfinished jobs a tenant may have; 0: any number.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="NETWORK",
    help="The address or network of a proxy whose X-Forwarded-For is believed; may be repeated.",
)
@app_option
@click.pass_obj
def serve(
    context: CommandContext,
    host: str,
    port: int,
    cert_file: str,
    key_file: str,
    allowed_hosts: tuple[str, ...],
    metrics_token_file: str,
    app: str | None,
    key_rate: int,
    tenant_rate: int,
    tenant_jobs: int,
    trusted_proxies: tuple[str, ...],
) -> None:
    """Serve the HTTP API of the store. Every call needs a key: see `holdfast keys`.

    On a journal `holdfast run` must be running: it owns the store. SIGTERM ends what is in progress
    first. Events are checked by the catalog files of the settings, and by the types of --app.
    """
    from holdfast.api.declarations import Declarations  # noqa: PLC0415 - for serving only
    from holdfast.api.limits import LimitOptions  # noqa: PLC0415
    from holdfast.api.server import ApiOptions  # noqa: PLC0415 - plain commands import no server
    from holdfast.api.server import serve as serve_api  # noqa: PLC0415
    from holdfast.cli.store_access import require_at_hand  # noqa: PLC0415
    from holdfast.daemon.worker_settings import event_loop_runner  # noqa: PLC0415
    from holdfast.telemetry.log_output import LogOptions, configure_logging  # noqa: PLC0415

    registry = context.registry(app)
    settings = context.settings()
    require_at_hand(settings)
    configure_logging(LogOptions(settings.log_level, settings.log_format))
    options = ApiOptions(
        host=host,
        port=port,
        cert_file=cert_file,
        key_file=key_file,
        allowed_hosts=allowed_hosts,
        metrics_token_file=metrics_token_file,
        limits=LimitOptions(key_rate=key_rate, tenant_rate=tenant_rate, max_jobs=tenant_jobs),
        trusted_proxies=trusted_proxies,
    )
    declared = Declarations.of(registry, settings)
    with event_loop_runner(settings) as runner:
        runner.run(serve_api(settings, options, _say, declared))


def _say(line: str) -> None:
    echo(line)
    sys.stdout.flush()
