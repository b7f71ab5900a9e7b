"""Which projections there are: those of the application, of files, and the chronicle."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.catalog import Catalog
from holdfast.model.errors import InvalidInput
from holdfast.model.event import Event
from holdfast.operations.catalog_files import read_catalog, yaml_content, yaml_files
from holdfast.settings import Settings
from holdfast.worker.registry import Registry

from . import chronicle
from .apply import ReadEvent
from .declaration import ProjectedEvent, Projection
from .mapping import read_mappings

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
    if settings.chronicle:
        everything.add_projection(chronicle.PROJECTION)
    return everything.projections


def _of_file(content: object) -> Mapping[str, Projection]:
    if not isinstance(content, Mapping) or set(content) != {"projections"}:
        raise InvalidInput(
            "projections", "the file must have `projections:`, and nothing beside it"
        )
    return read_mappings(content["projections"])


def reader(registry: Registry | None, settings: Settings) -> ReadEvent:
    """Return what reads events by the catalog of the application and of its files."""
    known = None if registry is None else registry.catalog
    return event_reader(read_catalog(settings.catalog, known).checked())


def event_reader(catalog: Catalog) -> ReadEvent:
    """Return what reads events in the current version of their type, with their text."""

    def read(event: Event) -> ProjectedEvent:
        now = catalog.upcast(event)
        data: Mapping[str, object] = msgspec.json.decode(now.payload)
        return ProjectedEvent(now, data, catalog.text_of(now))

    return read
