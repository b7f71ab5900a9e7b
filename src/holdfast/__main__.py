"""``python -m holdfast``: the command line without its script."""

from .cli.main import main

main(prog_name="holdfast")
