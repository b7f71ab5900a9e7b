"""What is stored about projections."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.model.audit import Attribution
from holdfast.model.errors import ChangedMeanwhile
from holdfast.model.projection import ProjectionState

from .audit import add_audit

_STATE = msgspec.json.Decoder(ProjectionState)


def projections() -> SansIO[Mapping[str, ProjectionState]]:
    """Return what is stored about projections, by name."""
    found = yield from execute("list_projections")
    return {name: _STATE.decode(state) for name, state in found}


def set_projection(
    state: ProjectionState,
    expected: ProjectionState | None,
    attribution: Attribution,
    context: CallContext,
) -> SansIO[None]:
    """Store what is known about a projection, if it is as expected until then."""
    yield from execute("lock_keys", names=[f"projection/{state.name}"])
    if (yield from projections()).get(state.name) != expected:
        raise ChangedMeanwhile("projection", state.name)
    yield from execute_all(put_statement(state))
    if attribution.audit:
        [[[now_us]]] = yield from execute_all(context.now())
        yield from add_audit(attribution.audit, now_us)


def put_statement(state: ProjectionState) -> Statement:
    """Return the statement that stores what is known about a projection."""
    record = msgspec.json.encode(state).decode()
    return Statement("put_projection", {"name": state.name, "state": record})
