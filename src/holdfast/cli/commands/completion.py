"""``holdfast completion``: shell completion."""

from __future__ import annotations

import click

from holdfast.cli.output import echo_lines


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    For bash: put eval "$(holdfast completion bash)" into ~/.bashrc.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not support {shell}")
    made = kind(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE")
    # Not source(): it runs the shell to find its version.
    echo_lines(made.source_template % made.source_vars())
