"""``holdfast serve``: the HTTP API, as a process of its own."""

from __future__ import annotations

import sys

import click

from holdfast.cli.group import CommandContext
from holdfast.cli.output import echo


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
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="NETWORK",
    help="The address or network of a proxy whose X-Forwarded-For is believed; may be repeated.",
)
@click.pass_obj
def serve(
    context: CommandContext,
    host: str,
    port: int,
    cert_file: str,
    key_file: str,
    allowed_hosts: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
) -> None:
    """Serve the HTTP API of the store. Every call needs a key: see `holdfast keys`.

    On a journal `holdfast run` must be running: it owns the store. SIGTERM ends what is in progress
    first.
    """
    from holdfast.api.server import ApiOptions  # noqa: PLC0415 - plain commands import no server
    from holdfast.api.server import serve as serve_api  # noqa: PLC0415
    from holdfast.cli.store_access import require_at_hand  # noqa: PLC0415
    from holdfast.daemon.worker_settings import event_loop_runner  # noqa: PLC0415
    from holdfast.telemetry.log_output import LogOptions, configure_logging  # noqa: PLC0415

    settings = context.settings()
    require_at_hand(settings)
    configure_logging(LogOptions(settings.log_level, settings.log_format))
    options = ApiOptions(
        host=host,
        port=port,
        cert_file=cert_file,
        key_file=key_file,
        allowed_hosts=allowed_hosts,
        trusted_proxies=trusted_proxies,
    )
    with event_loop_runner(settings) as runner:
        runner.run(serve_api(settings, options, _say))


def _say(line: str) -> None:
    echo(line)
    sys.stdout.flush()
