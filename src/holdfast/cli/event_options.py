"""Options of commands about events: the application, filters; and the catalog that counts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.model.errors import InvalidInput
from holdfast.model.event import check_event_id
from holdfast.model.event_search import EventFilter
from holdfast.model.job import check_id, check_scope

from .group import CommandContext
from .options import moment_us

if TYPE_CHECKING:
    from holdfast.operations.catalog_files import CatalogReport

F = TypeVar("F", bound=Callable[..., object])

_FILTERS: tuple[tuple[tuple[str, ...], str, bool, str], ...] = (
    (("--id", "ids"), "ID", True, "This event; may be repeated."),
    (("--type", "event_types"), "TYPE", True, "Of this type; may be repeated."),
    (("--tenant", "tenant"), "NAME", False, "Of this tenant."),
    (("--scope", "scope"), "PATH", False, "In this scope, or inside it."),
    (("--key", "key"), "KEY", False, "Of this ordering key."),
    (("--entity", "entity"), "TYPE[:ID]", False, "About this kind of entity, or about this one."),
    (("--actor", "actor"), "[TYPE:]ID", False, "By this actor; without a type: by this user."),
    (("--request-id", "request_id"), "ID", False, "Of this request."),
    (("--correlation-id", "correlation_id"), "ID", False, "With this correlation id."),
    (("--since", "since"), "WHEN", False, "That occurred at or after this date or age."),
    (("--until", "until"), "WHEN", False, "That occurred before this date or age."),
)


def app_option(command: F) -> F:
    """Add ``--app``."""
    text = "Use its store, and the event types that it declares."
    return click.option("--app", metavar="MODULE:APP", help=text)(command)


def read_report(context: CommandContext, app: str | None) -> CatalogReport:
    """Read the event types of the application, if one is named, and of the catalog files."""
    from holdfast.operations.catalog_files import read_catalog  # noqa: PLC0415

    registry = context.registry(app)
    return read_catalog(context.settings().catalog, None if registry is None else registry.catalog)


def event_filter_options(command: F) -> F:
    """Add every filter; the command gets one ``wanted``."""
    return _with_filters(command, ())


def entry_filter_options(command: F) -> F:
    """Add the filters that entries of the chronicle have too; the command gets one ``wanted``."""
    return _with_filters(command, ("ids", "key"))


def _with_filters(command: F, left_out: Sequence[str]) -> F:
    filters = [one for one in _FILTERS if one[0][-1] not in left_out]

    @functools.wraps(command)
    def with_filter(*args: object, **options: object) -> object:
        given = {names[-1]: options.pop(names[-1]) for names, *_rest in filters}
        return command(*args, wanted=filter_of(given), **options)

    decorated: Callable[..., object] = with_filter
    for names, metavar, multiple, text in reversed(filters):
        decorated = click.option(*names, metavar=metavar, multiple=multiple, help=text)(decorated)
    return decorated  # type: ignore[return-value]


def filter_of(given: dict[str, object]) -> EventFilter:
    """Return the filter of these options; raise ``InvalidInput`` naming a wrong one."""
    options = {names[-1]: names[0] for names, *_rest in _FILTERS}
    fields: dict[str, object] = {}
    for name, value in given.items():
        if value in (None, ()):
            continue
        for text in value if isinstance(value, tuple) else (value,):
            check_id(str(text), options[name])
        if name == "ids" and isinstance(value, tuple):
            fields["ids"] = tuple(check_event_id(one, "--id") for one in value)
        elif name == "entity":
            kind, colon, entity_id = str(value).partition(":")
            fields |= {"entity_type": kind} | ({"entity_id": entity_id} if colon else {})
        elif name == "actor":
            kind, colon, actor_id = str(value).rpartition(":")
            fields |= {"actor_type": kind if colon else "user", "actor_id": actor_id}
        elif name == "since":
            fields["occurred_from_us"] = moment_us("--since", str(value))
        elif name == "until":
            # Not included, as with other commands; the filter of an engine includes its end.
            fields["occurred_to_us"] = max(0, moment_us("--until", str(value)) - 1)
        else:
            fields[name] = check_scope(str(value)) if name == "scope" else value
    make: Callable[..., EventFilter] = EventFilter
    wanted = make(**fields)
    try:
        wanted.check()
    except InvalidInput as error:
        raise InvalidInput(options.get(error.field, error.field), error.problem) from None
    return wanted
