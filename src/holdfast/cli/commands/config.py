"""``holdfast config``, and a flag for every setting."""

from __future__ import annotations

import click


class WithEverySetting(click.Command):
    """A command that has a flag for each setting, also for those that its help does not name."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the flags; hidden ones are made when the command is used."""
        from holdfast.settings import Settings  # noqa: PLC0415 - not for the help of others

        params = super().get_params(ctx)
        known = {flag for parameter in params for flag in parameter.opts}
        flags = {field: f"--{field.replace('_', '-')}" for field in Settings.__struct_fields__}
        text = "The setting of this name: see holdfast config show."
        return params + [
            click.Option([flag], metavar="VALUE", hidden=True, help=text)
            for field, flag in flags.items()
            if flag not in known and field != "store"  # which is said before the command
        ]


@click.group("config")
def config() -> None:
    """See, check and change what the daemon and the commands go by."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Say where each setting comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(*, origin: bool, as_json: bool) -> None:
    """Print every setting that holds, as a settings file. Passwords are not shown."""
    from holdfast.cli import config_actions  # noqa: PLC0415

    config_actions.show(origin=origin, as_json=as_json)


@config.command("check")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(file: str | None, *, as_json: bool) -> None:
    """Say everything that is wrong with the settings; exit 2 if anything is.

    FILE is a settings file to look at instead of the usual one. The environment counts as well.
    """
    from holdfast.cli import config_actions  # noqa: PLC0415

    config_actions.check(file, as_json=as_json)


@config.command("diff")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(*, as_json: bool) -> None:
    """Print what differs from the defaults, and from what the running daemon goes by."""
    from holdfast.cli import config_actions  # noqa: PLC0415

    config_actions.diff(as_json=as_json)


@config.command("reload")
@click.option("--by", metavar="NAME", help="Who does it (default: who is logged in).")
@click.option(
    "--reason",
    metavar="TEXT",
    default="config reload",
    show_default=True,
    help="Why: it is kept with the names of the settings that change.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reload(*, by: str | None, reason: str, as_json: bool) -> None:
    """Have the running daemon read its settings again, as a SIGHUP does, and say what changed.

    The daemon reads its own file, environment and flags. If anything is wrong there, it goes on as
    before.
    """
    from holdfast.cli import config_actions  # noqa: PLC0415

    config_actions.reload(by, reason, as_json=as_json)
