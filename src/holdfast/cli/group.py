"""The base of every command, and how errors become messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from holdfast.model import errors
from holdfast.model.visible_text import visible_lines

from .exit_codes import EXIT_FAILED, EXIT_UNAVAILABLE, exit_code

if TYPE_CHECKING:
    from holdfast.settings import LoadedSettings, Settings, SettingsReport
    from holdfast.worker.registry import Registry


TYPED = "holdfast.typed"
"""Where a click context keeps the words of the command line."""


class CommandGroup(click.Group):
    """A group whose commands end with a message and an exit code, never with a traceback.

    ``lazy_commands`` maps names to module:name in ``cli.commands``: a module is imported when its
    command is used or listed.
    """

    lazy_commands: Mapping[str, str] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; the whole command line stays known."""
        if ctx.parent is None:
            ctx.meta[TYPED] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            vars(error)["message"] = visible_lines(error.message)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Import all commands and return their names."""
        for name in self.lazy_commands:
            self.get_command(ctx, name)
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name."""
        if cmd_name in self.lazy_commands and cmd_name not in self.commands:
            module, _, attribute = self.lazy_commands[cmd_name].partition(":")
            found = importlib.import_module(f".commands.{module}", __package__)
            self.add_command(getattr(found, attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentence."""
        rows = [
            (name, command.get_short_help_str(limit=200))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except errors.HoldfastError as error:
            _print_error(str(error))
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            # The reader of our output is gone, as with `| head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except KeyboardInterrupt:
            _print_error("interrupted")
            ctx.exit(EXIT_FAILED)
        except (click.exceptions.Exit, click.Abort):
            raise
        except click.ClickException as error:
            vars(error)["message"] = visible_lines(error.message)
            raise
        except OSError as error:
            _print_error(f"system error: {error}")
            ctx.exit(EXIT_UNAVAILABLE)
        except Exception as error:
            if os.environ.get("HOLDFAST_DEBUG"):
                raise
            _print_error(
                f"{type(error).__name__}: {error}. This is a bug: please report it; "
                "HOLDFAST_DEBUG=1 shows the traceback"
            )
            ctx.exit(EXIT_FAILED)


class WithEverySetting(click.Command):
    """A command with a flag for every setting; its help shows only some of them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the flags; the hidden ones are created on use."""
        from holdfast.settings import Settings  # noqa: PLC0415 - not for the help of others

        params = super().get_params(ctx)
        known = {flag for parameter in params for flag in parameter.opts}
        flags = {field: f"--{field.replace('_', '-')}" for field in Settings.__struct_fields__}
        text = "The setting of this name: see holdfast config show."
        return params + [
            click.Option([flag], metavar="VALUE", hidden=True, help=text)
            for field, flag in flags.items()
            if flag not in known and field != "store"  # which is an option of the main command
        ]


MAX_MESSAGE = 2_000
"""Messages may quote what a person typed."""


def _print_error(message: str) -> None:
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} … {message[-MAX_MESSAGE // 2 :]}"
    # It may quote what a person typed, or what somebody else wrote.
    click.echo(visible_lines(f"holdfast: {message}"), err=True)


class CommandContext:
    """The global options, and the settings that they lead to."""

    def __init__(self, config: str | None, store: str | None, app: str | None = None) -> None:
        self._config = config
        self._store = store
        self._app = app
        self._registry: Registry | None = None

    def registry(self, app: str | None = None) -> Registry | None:
        """Import the application, and go by the store that it names; None without one."""
        wanted = self._app if app is None else app
        if self._registry is None and wanted is not None:
            from holdfast.worker.app_loader import load_registry  # noqa: PLC0415

            self._registry = load_registry(wanted)
        return self._registry

    def load(self, **flags: object) -> LoadedSettings:
        """Read the settings, with these flags on top; raise ``InvalidInput`` for a problem."""
        return self.read(flags=flags).checked()

    def read(
        self, file: str | None = None, flags: Mapping[str, object] = MappingProxyType({})
    ) -> SettingsReport:
        """Read the settings, with these flags on top, and every problem with them."""
        from holdfast.settings import NO_APPLICATION, read  # noqa: PLC0415 - help needs none

        registry = self.registry()
        named = NO_APPLICATION if registry is None else registry.settings
        return read(
            self._config if file is None else file,
            environ=os.environ,
            flags={"store": self._store, **flags},
            application=named,
        )

    def settings(self, **flags: object) -> Settings:
        """Return the settings, with these flags on top."""
        return self.load(**flags).settings
