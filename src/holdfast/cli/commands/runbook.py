"""``holdfast runbook``: what a failure or a situation means, and what to do about it.

The pages are those of docs/runbook, which the package contains as ``holdfast/runbook``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import resources

import click

from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo_lines, note, table
from holdfast.model.errors import UnknownPage
from holdfast.model.failure import REASONS, FailureClass

_REASON = "reason-"
_INDEX = "README"


@click.command("runbook")
@click.argument("topic", required=False, metavar="[REASON|GROUP|PAGE]")
@json_option
@click.pass_obj
def runbook(context: CommandContext, topic: str | None, *, as_json: bool) -> None:
    """Print what to do about an error reason, a group of failures or a situation.

    Without an argument it lists the pages. For a group (g-…) it is the page of its reason, with the
    group's id in the commands.
    """
    pages = _pages()
    if topic is None:
        _list(pages, as_json=as_json)
        return
    from .groups import is_group_id  # noqa: PLC0415 - a list needs no filters

    group_id = topic.strip().lower()
    if is_group_id(group_id):
        name = _page_of_group(context, group_id, pages)
        text = re.sub(r"\bGROUP\b", group_id, pages[name])
    else:
        name = _page_named(topic, pages)
        text = pages[name]
    if as_json:
        document({"page": name, "about": _about(text), "text": text})
    else:
        _print(text)


def _pages() -> Mapping[str, str]:
    """Return the text of every page by its name, reasons last."""
    found = {
        file.name.removesuffix(".md"): file.read_text("utf-8")
        for file in (resources.files("holdfast") / "runbook").iterdir()
        if file.name.endswith(".md")
    }
    found.pop(_INDEX, None)
    return dict(sorted(found.items(), key=lambda page: (page[0].startswith(_REASON), page[0])))


def _about(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _list(pages: Mapping[str, str], *, as_json: bool) -> None:
    rows = [(name.removeprefix(_REASON), _about(text)) for name, text in pages.items()]
    if as_json:
        document([{"page": page, "about": about} for page, about in rows])
    else:
        table(("PAGE", "ABOUT"), [(page, about.partition(": ")[2]) for page, about in rows])


def _page_named(topic: str, pages: Mapping[str, str]) -> str:
    """Return the page of a reason, a page's name, or the address that an alert has."""
    word = _plain(topic.rpartition("/")[2].removesuffix(".md"))
    by_word = {_plain(name): name for name in pages}
    by_word |= {_plain(name.removeprefix(_REASON)): name for name in pages}
    if word not in by_word:
        raise UnknownPage(topic, [name.removeprefix(_REASON) for name in pages])
    return by_word[word]


def _plain(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def _page_of_group(context: CommandContext, group_id: str, pages: Mapping[str, str]) -> str:
    """Return the page for the reason of a group; an application's own reason has a similar one."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    group = store_access.read_store(
        context.settings(), lambda operations: operations.groups.get(group_id)
    )
    reason = group.error_reason
    if reason not in REASONS:
        final = group.failure_class is FailureClass.DETERMINISTIC
        near = "business_error" if final else "unexpected"
        note(f"{reason!r} is a reason of the application's own; this is the page for {near}")
        reason = near
    return _page_named(reason, pages)


def _print(text: str) -> None:
    """Print Markdown: laid out on a terminal, and as it is elsewhere."""
    if not sys.stdout.isatty():
        echo_lines(text)
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.markdown import Markdown  # noqa: PLC0415

    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
