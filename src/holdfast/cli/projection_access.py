"""Reaching projections from a command: which are declared, and the store that they are in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.operations.projections import ProjectionOperations
from holdfast.projections.registry import declared, reader

from . import store_access

if TYPE_CHECKING:
    from holdfast.operations.operations import Operations

    from .group import CommandContext

T = TypeVar("T")
ProjectionWork = Callable[[ProjectionOperations], Awaitable[T]]


def read_projections(context: CommandContext, app: str | None, work: ProjectionWork[T]) -> T:
    """Do work that only looks."""
    make = projection_operations(context, app)
    return store_access.read_store(context.settings(), lambda found: work(make(found)))


def write_projections(context: CommandContext, app: str | None, work: ProjectionWork[T]) -> T:
    """Do work that changes something."""
    make = projection_operations(context, app)
    return store_access.write_store(context.settings(), lambda found: work(make(found)))


def projection_operations(
    context: CommandContext, app: str | None
) -> Callable[[Operations], ProjectionOperations]:
    """Return what makes the operations on the projections that are declared here.

    Raise ``InvalidInput`` if a declaration is wrong, before a store is opened.
    """
    registry = context.registry(app)
    settings = context.settings()
    projections, read = declared(registry, settings), reader(registry, settings)
    return lambda found: ProjectionOperations(found.engine, projections, read)
