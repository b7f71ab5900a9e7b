"""``holdfast completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes bash, zsh or fish complete commands.

    For bash: put eval "$(holdfast completion bash)" into ~/.bashrc.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click knows nothing of {shell}")
    made = kind(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE")
    # Not its source(): that runs the shell to ask for its version.
    click.echo(made.source_template % made.source_vars())
