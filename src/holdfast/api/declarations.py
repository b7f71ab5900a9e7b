"""What the server knows of event types and projections: from files, and from an application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model.catalog import Catalog
from holdfast.operations.catalog_files import read_catalog
from holdfast.projections.apply import ReadEvent
from holdfast.projections.declaration import Projection
from holdfast.projections.registry import declared, event_reader
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.worker.registry import Registry


class Declarations:
    """The catalog that events are checked by, and the projections that can be rebuilt and read."""

    def __init__(
        self, catalog: Catalog | None = None, projections: Mapping[str, Projection] | None = None
    ) -> None:
        self.catalog = catalog or Catalog()
        self.projections = projections or {}
        self.read: ReadEvent = event_reader(self.catalog)

    @classmethod
    def of(cls, registry: Registry | None, settings: Settings) -> Declarations:
        """Read the files that the settings name; raise ``InvalidInput`` if one is wrong."""
        known = None if registry is None else registry.catalog
        return cls(read_catalog(settings.catalog, known).checked(), declared(registry, settings))
