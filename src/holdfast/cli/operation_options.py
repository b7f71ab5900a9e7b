"""Options of commands that start a stored operation: its pace, its moment, and who waits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.operation import DEFAULT_ABORT_RATIO, MAX_CANARY
from holdfast.model.policy import Rate, rate_of

from .options import NO_LIMIT, moment_us

if TYPE_CHECKING:
    from holdfast.model.actions import AnyAction
    from holdfast.model.search import Filter
    from holdfast.operations.bulk import OperationRequest

F = TypeVar("F", bound=Callable[..., object])


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation goes on, and whether the command waits for it."""

    rate: Rate | None = None
    canary: int = 0
    abort_ratio: float | None = None
    as_of_us: int | None = None
    expect: int | None = None
    detach: bool = False

    def request(self, action: AnyAction, wanted: Filter, limit: int) -> OperationRequest:
        """Return the request for an operation at this pace."""
        from holdfast.operations.bulk import OperationRequest  # noqa: PLC0415 - imports an engine

        return OperationRequest(
            action=action,
            wanted=wanted,
            limit=None if limit >= NO_LIMIT else limit,
            rate=self.rate,
            canary=self.canary,
            abort_ratio=self.abort_ratio,
            as_of_us=self.as_of_us,
        )


def pace_options(*, outcomes: bool = False) -> Callable[[F], F]:
    """Add the options of a pace; with ``outcomes`` those that wait for how jobs end, too."""
    options = [
        click.option("--rate", metavar="N/UNIT", help="At most so many per time: 100/m."),
        click.option("--detach", is_flag=True, help="Return when it is stored."),
        click.option("--as-of", metavar="TIME", help="The moment of the plan (now)."),
        click.option(
            "--expect",
            type=click.IntRange(0),
            metavar="N",
            help="Refuse if the count differs by more than 10 % from this.",
        ),
    ]
    if outcomes:
        options[1:1] = [
            click.option(
                "--canary",
                type=click.IntRange(1, MAX_CANARY),
                metavar="N",
                help="Try so many first; go on if they succeed.",
            ),
            click.option(
                "--abort-above",
                metavar="PERCENT",
                help=f"Stop if more than this fail again ({DEFAULT_ABORT_RATIO:.0%} with a rate "
                "or a canary).",
            ),
        ]

    def add(command: F) -> F:
        @functools.wraps(command)
        def with_pace(
            *args: object,
            rate: str | None,
            detach: bool,
            as_of: str | None,
            expect: int | None,
            canary: int | None = None,
            abort_above: str | None = None,
            **others: object,
        ) -> object:
            pace = Pace(
                rate=None if rate is None else rate_of("--rate", rate),
                canary=canary or 0,
                abort_ratio=None if abort_above is None else _ratio(abort_above),
                as_of_us=None if as_of is None else moment_us("--as-of", as_of),
                expect=expect,
                detach=detach,
            )
            return command(*args, pace=pace, **others)

        decorated: Callable[..., object] = with_pace
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[return-value]

    return add


def _ratio(text: str) -> float:
    """Return a share: ``20%`` or ``0.2``."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidInput("--abort-above", f"{text[:40]!r} is not a share such as 20% or 0.2")
    return share
