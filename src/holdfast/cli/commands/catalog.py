"""``holdfast catalog``: the event types, and whether their declarations are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.event_options import app_option, read_report
from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options
from holdfast.cli.output import StyledText, document, echo, fields, lines, note, table
from holdfast.model.visible_text import visible

if TYPE_CHECKING:
    from holdfast.operations.event_views import EventTypeView
    from holdfast.operations.events import StoredCheck


@click.group("catalog", cls=CommandGroup)
def catalog_group() -> None:
    """List, show and check the event types: of catalog files and of an application."""


@catalog_group.command("list")
@app_option
@stream_options
@click.pass_obj
def list_types(context: CommandContext, *, app: str | None, as_json: bool, ndjson: bool) -> None:
    """List the event types that may be appended."""
    from holdfast.operations.event_views import EventTypeView  # noqa: PLC0415

    catalog = read_report(context, app).checked()
    found = [EventTypeView.of(one) for _name, one in sorted(catalog.types.items())]
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note("no event types: set HOLDFAST_CATALOG to a catalog file, or give --app MODULE:APP")
    else:
        table(
            ("TYPE", "VERSION", "ENTITY", "WHAT IT MEANS", "DECLARED IN"),
            [(one.name, one.version, one.entity, one.description, one.source) for one in found],
            right=("VERSION",),
        )


@catalog_group.command("show")
@click.argument("event_type", metavar="TYPE")
@app_option
@click.option("--schema", is_flag=True, help="Print its JSON Schema.")
@json_option
@click.pass_obj
def show_type(
    context: CommandContext, event_type: str, *, app: str | None, schema: bool, as_json: bool
) -> None:
    """Show one event type: its fields, versions, rules and text."""
    from holdfast.operations.event_views import EventTypeView  # noqa: PLC0415

    view = EventTypeView.of(read_report(context, app).checked().type_named(event_type))
    if schema:
        document(view.json_schema)
    elif as_json:
        document(view)
    else:
        _print_type(view)


def _print_type(view: EventTypeView) -> None:
    fields(
        [
            ("type", visible(view.name)),
            ("version", f"{view.version} (reads {', '.join(map(str, view.versions))})"),
            ("means", visible(view.description)),
            ("entity", view.entity + (f", by {view.entity_id}" if view.entity_id else "")),
            ("key", view.key),
            ("text", visible(view.text)),
            ("change", view.change),
            ("kept", view.retention),
            ("coalesced", view.coalesce),
            ("declared in", visible(view.source)),
        ]
    )
    for rule in view.rules:
        echo(f"{'rule: ':<15}{rule}")
    echo()
    table(
        ("FIELD", "TYPE", "REQUIRED", "LIMITS", "SENSITIVE"),
        [
            (
                one.name,
                one.type,
                "yes" if one.required else "no",
                one.limits,
                "yes" if one.name in view.sensitive else "",
            )
            for one in view.fields
        ],
    )


@catalog_group.command("check")
@app_option
@click.option("--stored", is_flag=True, help="Also read every stored event by it.")
@json_option
@click.pass_obj
def check_catalog(context: CommandContext, *, app: str | None, stored: bool, as_json: bool) -> None:
    """Check the declarations; exit 1 if one is wrong.

    With --stored every event of the store is read as well: an event whose type, version or data
    the catalog cannot read is an error.
    """
    report = read_report(context, app)
    problems = [str(problem) for problem in report.problems]
    doubts = [
        f"{name}: {doubt}" for name, all_of in report.catalog.doubts().items() for doubt in all_of
    ]
    found: StoredCheck | None = None
    if stored and not problems:
        from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
        from holdfast.operations.events import EventOperations  # noqa: PLC0415

        found = store_access.read_store(
            context.settings(),
            lambda operations: EventOperations(operations.engine, report.catalog).check_stored(),
        )
        problems += [f"stored {line}" for line in found.problems]
    if as_json:
        document(
            {
                "types": len(report.catalog.types),
                "files": report.files,
                "problems": problems,
                "doubts": doubts,
                "stored": None if found is None else found.count,
            }
        )
    else:
        for problem in problems:
            echo(StyledText("wrong", "red"), f"    {problem}")
        for doubt in doubts:
            echo(StyledText("warning", "yellow"), f"  {doubt}")
        count = len(report.catalog.types)
        read = "" if found is None else f"; {found.count:,} stored events read"
        echo(f"{count} event type{'' if count == 1 else 's'}{read}")
    if problems:
        raise SystemExit(EXIT_FAILED)
