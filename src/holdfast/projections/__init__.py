"""Projections: read models that are made of events, kept up to date and rebuilt."""

from __future__ import annotations

from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.read_model import ColumnType, ReadModel

from .declaration import ProjectedEvent, Projection

__all__ = ["ColumnType", "ProjectedEvent", "Projection", "ReadModel", "RowWriter"]
