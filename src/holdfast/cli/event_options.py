"""Options of commands about events: the application, filters; and the catalog that counts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.model.errors import InvalidInput
from holdfast.model.event_search import EventFilter

from .group import CommandContext

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
    from holdfast.engines.clock import SystemClock  # noqa: PLC0415 - imports an engine
    from holdfast.operations.named_event_filter import event_filter_of  # noqa: PLC0415

    options = {names[-1]: names[0] for names, *_rest in _FILTERS}
    try:
        return event_filter_of(given, SystemClock().now_us())
    except InvalidInput as error:
        raise InvalidInput(options.get(error.field, error.field), error.problem) from None
