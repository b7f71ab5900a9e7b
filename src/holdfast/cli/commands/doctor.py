"""``holdfast doctor``: find problems, and what to do about them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import StyledText, document, echo
from holdfast.model.errors import HoldfastError
from holdfast.model.plural import count_of

if TYPE_CHECKING:
    from holdfast.operations.operations import Operations
    from holdfast.operations.views import Status
    from holdfast.settings import Settings
    from holdfast.worker.registry import Registry

Verdict = Literal["ok", "warning", "wrong"]


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check, and advice if there is a problem."""

    check: str
    verdict: Verdict
    said: str
    advice: str = ""


@click.command("doctor")
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings too.")
@json_option
@click.pass_obj
def doctor(context: CommandContext, app: str | None, *, strict: bool, as_json: bool) -> None:
    """Check settings, store, daemon and jobs; print problems and what to do.

    With an application, its tasks are checked against the settings too. It changes nothing.
    Exit 1 if something is wrong; a warning alone is not an error.
    """
    from holdfast.worker.app_loader import load_registry  # noqa: PLC0415 - not for help

    registry = None if app is None else load_registry(app)
    found = examine(context, registry)
    if app is not None and registry is not None:
        found += _declarations(context, app, registry)
    bad = [one for one in found if one.verdict == "wrong" or (strict and one.verdict != "ok")]
    if as_json:
        document({"well": not bad, "findings": found})
    else:
        colours = {"ok": "green", "warning": "yellow", "wrong": "red"}
        for one in found:
            verdict = StyledText(f"{one.verdict:<8}", colours[one.verdict])
            echo(verdict, f" {one.check}: {one.said}")
            if one.advice:
                echo(f"         → {one.advice}")
        worst = sum(one.verdict == "wrong" for one in found)
        warned = sum(one.verdict == "warning" for one in found)
        echo(f"{worst} wrong, {count_of(warned, 'warning')}")
    if bad:
        raise SystemExit(EXIT_FAILED)


def examine(context: CommandContext, registry: Registry | None = None) -> list[CheckResult]:
    """Run every check; one that cannot run reports that."""
    from holdfast.cli import doctor_checks  # noqa: PLC0415 - imports an engine
    from holdfast.cli.projection_checks import projection_checks  # noqa: PLC0415

    try:
        loaded = context.load()
    except HoldfastError as error:
        return [
            CheckResult(
                "settings", "wrong", str(error), "fix this first: nothing else can be checked"
            )
        ]
    settings = loaded.settings
    found = [CheckResult("settings", "ok", f"store {settings.store_shown}, sync {settings.sync}")]
    found += [
        CheckResult("settings", "warning", warning, "correct it, or remove it")
        for warning in loaded.warnings
    ]
    owned = _run_check("ownership", lambda: doctor_checks.ownership(settings))
    found += owned
    if any(one.verdict == "wrong" for one in owned):
        return found  # to look further would be to use it
    for check in doctor_checks.STORE_CHECKS:
        found += _run_check(check.__name__.replace("_", " "), lambda check=check: check(settings))  # type: ignore[misc]
    if any(one.verdict == "wrong" for one in found if one.check in ("store", "daemon")):
        return found
    checks = (*doctor_checks.WORK_CHECKS, *projection_checks(registry or context.registry()))
    return found + _check_work(settings, checks)


def _declarations(context: CommandContext, app: str, registry: Registry) -> list[CheckResult]:
    from holdfast.cli import doctor_checks  # noqa: PLC0415 - imports an engine

    return doctor_checks.declarations(app, registry, context.load())


def _run_check(name: str, check: Callable[[], list[CheckResult]]) -> list[CheckResult]:
    try:
        return check()
    except HoldfastError as error:
        return [CheckResult(name, "wrong", str(error))]
    except OSError as error:
        return [CheckResult(name, "wrong", f"system error: {error}")]


Check = Callable[["Operations", "Settings", "Status"], Awaitable[list[CheckResult]]]


def _check_work(settings: Settings, checks: tuple[Check, ...]) -> list[CheckResult]:
    from holdfast.cli import store_access  # noqa: PLC0415

    from .status import read_status  # noqa: PLC0415

    async def run_checks(operations: Operations) -> list[CheckResult]:
        found: list[CheckResult] = []
        for check in checks:
            try:
                found += await check(operations, settings, status)
            except HoldfastError as error:
                found.append(CheckResult(check.__name__.replace("_", " "), "wrong", str(error)))
        return found

    try:
        status = read_status(settings)
        began = time.monotonic()
        found = store_access.read_store(settings, run_checks)
        seconds = time.monotonic() - began
    except HoldfastError as error:
        advice = "`holdfast journal verify` shows the extent of any damage"
        return [CheckResult("store", "wrong", str(error), advice)]
    except OSError as error:
        return [CheckResult("store", "wrong", f"system error: {error}")]
    if not settings.on_server and not store_access.has_owner(settings):
        found.append(CheckResult("recovery", "ok", f"reading the whole store took {seconds:.2f} s"))
    return found
