"""Which projections there are: those of the application, of files, and the chronicle."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.catalog import Catalog
from holdfast.model.errors import InvalidInput, UnknownProjection
from holdfast.model.event import Event
from holdfast.operations.catalog_files import read_catalog, yaml_content, yaml_files
from holdfast.settings import Settings
from holdfast.worker.registry import Registry

from . import chronicle
from .apply import ReadEvent
from .declaration import ProjectedEvent, Projection
from .mapping import read_mappings
from .tasks import add_projection_tasks

DEFAULT_PROJECTIONS = "./projections.yaml"
"""Read when the setting ``projections`` is not set and this file exists."""


def declared(registry: Registry | None, settings: Settings) -> dict[str, Projection]:
    """Return every projection by name; raise ``InvalidInput`` naming the file and the place."""
    everything = Registry()
    for projection in () if registry is None else registry.projections.values():
        everything.add_projection(projection)
    for file in yaml_files("projections", settings.projections, DEFAULT_PROJECTIONS):
        try:
            for projection in _of_file(yaml_content("projections", file)).values():
                everything.add_projection(projection)
        except InvalidInput as error:
            raise InvalidInput(f"{file}: {error.field}", error.problem) from None
    if settings.chronicle and _catalog(registry, settings).types:
        # Without a declared event there is none to project, and a store needs no table for them.
        everything.add_projection(chronicle.PROJECTION)
    return everything.projections


def add_projections(
    registry: Registry, engine: Engine, settings: Settings
) -> tuple[dict[str, Projection], ReadEvent]:
    """Add the tasks of the projections that a process applies; return these, and their reader.

    If the settings name some, the process does nothing else.
    """
    projections = chosen(declared(registry, settings), settings.only_projections)
    if settings.only_projections is not None:
        registry.tasks.clear()
        registry.schedules.clear()
    read = reader(registry, settings)
    add_projection_tasks(registry, engine, projections, read)
    return projections, read


def chosen(projections: dict[str, Projection], names: str | None) -> dict[str, Projection]:
    """Return the projections of these names, separated by commas; None: all of them."""
    if names is None:
        return projections
    found: dict[str, Projection] = {}
    for name in names.split(","):
        if name not in projections:
            raise UnknownProjection(name, projections)
        found[name] = projections[name]
    return found


def _of_file(content: object) -> Mapping[str, Projection]:
    if not isinstance(content, Mapping) or set(content) != {"projections"}:
        raise InvalidInput(
            "projections", "the file must have `projections:`, and nothing beside it"
        )
    return read_mappings(content["projections"])


def reader(registry: Registry | None, settings: Settings) -> ReadEvent:
    """Return what reads events by the catalog of the application and of its files."""
    return event_reader(_catalog(registry, settings))


def _catalog(registry: Registry | None, settings: Settings) -> Catalog:
    known = None if registry is None else registry.catalog
    return read_catalog(settings.catalog, known).checked()


def event_reader(catalog: Catalog) -> ReadEvent:
    """Return what reads events in the current version of their type, with their text."""

    def read(event: Event) -> ProjectedEvent:
        now = catalog.upcast(event)
        if now.version != event.version:
            catalog.value_of(now)  # what came of an older version may not fit the current one
        data: Mapping[str, object] = msgspec.json.decode(now.payload)
        return ProjectedEvent(now, data, catalog.text_of)

    return read
