"""What every command starts from, and how errors become sentences and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.model import errors

from .exit_codes import EXIT_FAILED, EXIT_UNAVAILABLE, exit_code

if TYPE_CHECKING:
    from holdfast.settings import LoadedSettings, Settings


class CommandGroup(click.Group):
    """A group whose commands end in a sentence and an exit code, never in a traceback.

    ``elsewhere`` says where commands are, as module:name in ``cli.commands``: a module is imported
    when its command is used or listed.
    """

    elsewhere: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, and import them all."""
        for name in self.elsewhere:
            self.get_command(ctx, name)
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name."""
        if cmd_name in self.elsewhere and cmd_name not in self.commands:
            module, _, attribute = self.elsewhere[cmd_name].partition(":")
            found = importlib.import_module(f".commands.{module}", __package__)
            self.add_command(getattr(found, attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the whole of their first sentence."""
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
            _say(str(error))
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            # The reader of our output has left; that is how `| head` ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except KeyboardInterrupt:
            _say("interrupted")
            ctx.exit(EXIT_FAILED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except OSError as error:
            _say(f"the system says: {error}")
            ctx.exit(EXIT_UNAVAILABLE)
        except Exception as error:
            if os.environ.get("HOLDFAST_DEBUG"):
                raise
            _say(
                f"{type(error).__name__}: {error}. This was not foreseen: please report it; with "
                "HOLDFAST_DEBUG=1 it says where it happened"
            )
            ctx.exit(EXIT_FAILED)


LONGEST = 2_000
"""Of a sentence: what a person typed may be in it."""


def _say(sentence: str) -> None:
    if len(sentence) > LONGEST:
        sentence = f"{sentence[: LONGEST // 2]} … {sentence[-LONGEST // 2 :]}"
    # What a person typed may be in it, and half a character cannot be printed.
    text = f"holdfast: {sentence}".encode("utf-8", "backslashreplace").decode()
    click.echo(text, err=True)


class CommandContext:
    """What every command starts from."""

    def __init__(self, config: str | None, store: str | None) -> None:
        self._config = config
        self._store = store

    def load(self, **flags: object) -> LoadedSettings:
        """Read the settings, with these flags on top."""
        from holdfast.settings import load  # noqa: PLC0415 - help needs none

        flags.setdefault("store", self._store)
        return load(self._config, environ=os.environ, flags=flags)

    def settings(self, **flags: object) -> Settings:
        """Return the settings, with these flags on top."""
        return self.load(**flags).settings
