"""Generate docs/reference/ from the code: `make docs`, or `--check` to compare.

The sources are those that the program itself uses: the settings' struct and parsers, the tree of
commands, the error classes, the catalogues of metrics and log events, the alert rules.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import click
import yaml
from limits_page import limits_page
from msgspec.structs import replace
from python_api import python_api_page

from holdfast.cli.exit_codes import EXIT_CODES, MEANINGS, exit_code
from holdfast.cli.main import main as holdfast
from holdfast.daemon.reload import RELOADABLE
from holdfast.model import errors, failure, log_events
from holdfast.model.errors import HoldfastError, InvalidInput
from holdfast.settings import (
    ALIASES,
    DATABASE_URL,
    DEFAULTS,
    OLD_ENVIRONMENT,
    Settings,
    fields,
    formatted,
)
from holdfast.settings.parsers import PARSERS
from holdfast.telemetry import http_metrics, metrics

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
MADE = "<!-- Generated from the code by scripts/reference.py: do not edit, run `make docs`. -->\n\n"
YEAR_SECONDS = 365 * 86_400.0

SETTINGS_INTRODUCTION = """# Settings

A setting has one name everywhere: the key in the file (`configs/default.yaml`, or `--config FILE`;
YAML or TOML), `HOLDFAST_…` in the environment, the flag of `holdfast run`. Its other names work in
all of these too. A flag wins over the environment, the environment over the file, the file over
the default. Durations are written `500ms`, `3s`, `2m`, `1h30m`, or as plain seconds. A value that
cannot be read is an error that names the field, the value and its source.

The store and the file that an application names, `Holdfast("./store", config="shop.yaml")`, count
for `holdfast run` too: a flag wins over them, and they win over the environment. A contradiction is
a warning at the start. `holdfast --app MODULE:APP` does the same for any other command.

`holdfast config show --origin` prints each value and its source, `config check` lists all errors,
`config diff` shows what differs from the defaults and from the running daemon, and `config reload`
(or SIGHUP) applies the settings that can change at run time.

"""

CLI_INTRODUCTION = """# Commands

`--help` of any command prints the same. Commands work with and without a running daemon; those
to daemons (`workers resize|drain|resume|log-level`, `config reload`) need one. `--json` prints
one document, `--ndjson` an object per line. Without a terminal there are no questions and no
colours (`NO_COLOR` turns colours off too). A change is recorded with who made it (`--by`) and why
(`--reason`).
[Exit codes](exit-codes.md).

"""

FORMS: Mapping[str, str] = {
    "store": "a directory, `postgresql://user@host/database`, `https://host:port`, or `memory:`",
    "projection_schema": "a name of small letters, digits and `_`, 63 at most",
    "schema": "a name of small letters, digits and `_`, 63 at most",
    "listen_url": "`postgresql://user@host/database`",
    "wal_path": "the path of a file, in the store's directory",
    "snapshot_path": "the path of a file",
    "queues": "names, optionally with slots: `mail:8,slow:2`; in a file also a list",
    "worker_id": "a name",
    "catalog": "paths of YAML files or directories, separated by commas; in a file also a list",
    "only_projections": "names of projections, separated by commas",
    "projections": "paths of YAML files or directories, separated by commas; in a file also a list",
    "chronicle": "`on` or `off`",
    "default_task": "the name of a task",
    "backoff_jitter": "a number from 0 to 1",
    "max_history_bytes": "a number of bytes from 64KiB up, such as `512MiB` or `2GiB`",
    "keep_payload": "`on` or `off`",
    "keep_log_bytes": "a number of bytes, such as `512MiB` or `2GiB`",
    "memory_limit_bytes": "a number of bytes from 1MiB up, such as `512MiB`",
    "metrics_host": "an IP address of this machine, `localhost`, or `0.0.0.0` or `::` for all",
    "metrics_allowed_hosts": "names separated by commas, such as `metrics.example.org,.svc`",
    "metrics_token_file": "the path of a file",
    "metrics_cert_file": "the path of a file",
    "metrics_key_file": "the path of a file",
    "api_key_file": "the path of a file",
    "api_ca_file": "the path of a file",
    "api_host": "an IP address of this machine, `localhost`, or `0.0.0.0` or `::` for all",
    "api_allowed_hosts": "names separated by commas, such as `jobs.example.org,.svc`",
    "api_tls_cert_file": "the path of a file",
    "api_tls_key_file": "the path of a file",
    "api_trusted_proxies": "addresses or networks separated by commas, such as `10.0.0.0/8`",
    "api_metrics_token_file": "the path of a file",
    "api_oidc_issuer": "an address, such as `https://login.example.org`, as tokens have it",
    "api_oidc_audience": "a name",
    "api_oidc_jwks": "the path of a file, or an address such as `https://login.example.org/jwks`",
    "api_oidc_roles": "a mapping of values to roles; in one line `ops=operator,sre=responder`",
    "api_oidc_roles_claim": "the name of a claim, or a path",
    "api_oidc_tenants_claim": "the name of a claim, or a path",
    "api_oidc_scopes_claim": "the name of a claim, or a path",
    "flags": "a mapping of names to `on` or `off`; in one line `auto_replay=on,fast=off`",
}
"""The values of settings that are neither a number, a duration nor one of a few words."""

ADVICE: Mapping[str, str] = {
    "HoldfastError": "The base class: catch it to catch all of them.",
    "InvalidInput": "Correct the field that the message names (`.field`, `.problem`).",
    "PayloadInvalid": "Correct the argument that the message names. A payload is a JSON object.",
    "UnknownDependency": "Enqueue the other job first, or both in one call.",
    "UnknownEventType": "Declare the type, or correct the name: `holdfast catalog list`.",
    "EventInvalid": "Correct the field that it names; see `holdfast catalog show TYPE`.",
    "TooLarge": "Store large data elsewhere and send a reference; split batches.",
    "AccessDenied": "Use a caller whose tenant and scopes include the job.",
    "Forbidden": "Use a credential with a role that grants it: `holdfast keys list` shows roles.",
    "UnknownKey": "Look at `holdfast keys list`.",
    "DuplicateId": 'Nothing, if it was the same request; or another id, or `on_duplicate="skip"`.',
    "EventConflict": "Give the new event an id of its own; `supersedes` names the one it corrects.",
    "LeaseLost": "Stop working on the job: another worker has it. If often, raise `lease_seconds`.",
    "IllegalTransition": "Check the job's state first: `holdfast jobs show ID`.",
    "StaleVersion": "Read the job again, then decide again.",
    "ChangedMeanwhile": "Check the current state, then decide again.",
    "WorkerIdInUse": "Stop the process that it names, or give this one another `worker_id`.",
    "StorageError": "The message has the error of the disk. `holdfast doctor` shows what to do.",
    "StorageFull": "Free disk space, or do what the message says. Work in flight continues.",
    "DurabilityLost": "Check the disk, then start the daemon again: it recovers what was durable.",
    "CorruptLog": "Restore from a dump, or `holdfast journal verify`, then `salvage`.",
    "CorruptHistory": "Restore the file, or start with `--history anew`, which sets it aside.",
    "HistoryMissing": "Restore the file, or start with `--history anew`.",
    "CorruptEvents": "Restore the file, or copy what is intact with `holdfast journal salvage`.",
    "EventsMissing": "Put the file back, or restore it from a backup.",
    "UnknownFormat": "Use the version that wrote it, or a newer one.",
    "CorruptDump": "Use another copy of the dump, or dump again.",
    "AuditAltered": "`holdfast audit verify` says up to where it is intact. Restore from a backup.",
    "StoreNotOurs": "Look at what is at the path, then run the command that the message names.",
    "StoreMoved": "Use the store that it names, or remove `MOVED` there to use the old copy.",
    "DirectoryInUse": "Use the owner (commands do this), or stop it first.",
    "Unavailable": "Try again later; check with `holdfast status` before you repeat a change.",
    "KeyRefused": "Set HOLDFAST_API_KEY or api_key_file to a key of that store (`keys list`).",
    "NoOwner": "Start `holdfast run`, or own the store yourself: `Holdfast(own=True)`.",
    "UnknownTask": "Name a registered task, or first deploy the code that has it.",
    "JobNotFound": "Check id and tenant; finished jobs are deleted after `remember_seconds`.",
    "EventNotFound": "Check id and tenant: `holdfast events list`.",
    "PlanOutdated": "Make a new plan with `--dry-run`, and look at what changed.",
    "UnknownOperation": "`holdfast operations list` shows those that are remembered.",
    "UnknownSchedule": "`holdfast schedules list` shows the known schedules.",
    "UnknownProjection": "Correct the name, or name the application with `--app`.",
    "RebuildRunning": "Wait for it, or `holdfast rebuild NAME --resume` or `--cancel`.",
    "UnknownGroup": "`holdfast dead groups` lists the groups of failures with their ids.",
    "UnknownPage": "`holdfast runbook` lists the pages.",
    "UnknownQueue": "`holdfast queues list` shows them; `--new` is for one without jobs.",
    "JobFailed": "`holdfast dead show ID` shows why; fix it, then replay.",
    "NoResult": "Return less, or a reference; the job is done, and must not be enqueued again.",
    "ResultTimeout": "The job continues: wait longer, or check it later by its id.",
    "WrongLoop": "Use `await task.enqueue(...)` on the loop, `enqueue_sync` off it.",
    "EngineClosed": "Do not use the application after `close()`.",
    "InvariantViolation": "Report it, with the message and what `holdfast journal verify` prints.",
}
"""What to do about each error. The generator fails if one is missing."""


# --- Markdown -----------------------------------------------------------------------------------


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; cells may contain any text."""
    cells = [list(headings)]
    cells.append(["---"] * len(cells[0]))
    cells += [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def code(text: str) -> str:
    """Return text as code."""
    return f"`{text}`"


def codes(texts: Iterable[str]) -> str:
    """Return texts as code, separated by commas."""
    return ", ".join(map(code, texts))


def markdown(docstring: str | None) -> str:
    """Return a docstring or a help text as Markdown."""
    text = inspect.cleandoc(docstring or "").replace("\b\n", "").replace("``", "`")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


# --- settings -----------------------------------------------------------------------------------


def settings_page() -> str:
    """Every setting: its values, its names, and whether it can change at run time."""
    names = Settings.__struct_fields__
    meanings = _field_docstrings()
    parts = [
        SETTINGS_INTRODUCTION,
        table(
            ("setting", "default", "changes while running"),
            (
                (
                    f"[`{name}`](#{name})",
                    code(formatted(name, DEFAULTS[name])),
                    "yes" if name in RELOADABLE else "",
                )
                for name in names
            ),
        ),
    ]
    for name in names:
        parts.append(f"\n## {name}\n\n{meanings[name]}\n\n")
        parts += [f"- {label}: {text}\n" for label, text in _facts(name) if text]
    return "".join(parts)


def _facts(name: str) -> Iterator[tuple[str, str]]:
    aliases = [other for other, field in ALIASES.items() if field == name]
    old = [other for other, field in {**OLD_ENVIRONMENT, **DATABASE_URL}.items() if field == name]
    yield "default", code(formatted(name, DEFAULTS[name]))
    yield "takes", _accepted(name)
    yield "environment", codes([f"HOLDFAST_{name.upper()}", *old])
    flag = f"--{name.replace('_', '-')}"
    flags = ["holdfast --store"] if name == "store" else [f"holdfast run {flag}"]
    yield "flag", codes(flags)
    yield "also called", codes(aliases)
    changes = "yes, by `holdfast config reload` or SIGHUP" if name in RELOADABLE else "at start"
    if name == "queues":
        changes += "; only the numbers of slots"
    yield "changes while running" if name in RELOADABLE else "read", changes


def _refused(name: str, value: object) -> str:
    """Return the error for a value; empty if it is accepted."""
    try:
        PARSERS[name](name, value)
    except InvalidInput as error:
        return error.problem
    return ""


def _accepted(name: str) -> str:
    """Return what a setting accepts, found by trying values."""
    complaint = _refused(name, object())
    if name in FORMS:
        text = FORMS[name]
    elif "is not a whole number" in complaint:
        least, most = re.findall(r"from ([\d,]+) to ([\d,]+)", _refused(name, -1))[0]
        text = f"a whole number from {least} to {most}"
        if len(most) > 12:
            text = f"a whole number from {least} up"
    elif "is not a duration" in complaint:
        text = _durations(name)
    else:
        _problem, one_of, words = complaint.partition("is not one of ")
        assert one_of, f"{name} needs a line in FORMS: it says {complaint!r}"
        text = f"one of {codes(words.split(', '))}"
    nothing = [word for word in ("null", "off", "none") if _is_none(name, word)]
    return text + (f"; or {codes(nothing)}" if nothing else "")


def _is_none(name: str, word: str) -> bool:
    value = None if word == "null" else word
    return not _refused(name, value) and PARSERS[name](name, value) is None


def _durations(name: str) -> str:
    text = "a duration" + (", 0 included" if not _refused(name, 0) else " above 0")
    if least := re.search(r"less than ([\d.]+) seconds", _refused(name, 1e-9)):
        text = f"a duration from {formatted(name, float(least[1]))}"
    if most := re.search(r"up to ([\d.e+]+)", _refused(name, YEAR_SECONDS)):
        text += f", at most {formatted(name, float(most[1]))}"
    try:
        replace(Settings(), **{name: YEAR_SECONDS})
    except InvalidInput as error:
        if other := re.search(r"is more than (\w+)", error.problem):
            text += f", and no more than `{other[1]}`"
    return text


def _field_docstrings() -> dict[str, str]:
    """Return the docstring of each field of the struct."""
    (struct,) = ast.parse(inspect.getsource(fields.Settings)).body
    assert isinstance(struct, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(struct.body, struct.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr), field.target.id
            assert isinstance(text.value, ast.Constant)
            meaning = markdown(str(text.value.value)).replace(" See `queue_slots`.", "")
            found[field.target.id] = re.sub(r"\bNone\b", "`null`", meaning)
    return found


# --- commands, exit codes, errors ---------------------------------------------------------------


def cli_page() -> str:
    """Every command with its options."""
    commands = list(_walk("holdfast", holdfast))
    parts = [
        CLI_INTRODUCTION,
        *(f"- [`{path}`](#{path.replace(' ', '-')})\n" for path, _command in commands),
    ]
    for path, command in commands:
        parts.append(f"\n## {path}\n\n{_command_text(path, command)}")
    return "".join(parts)


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.commands[name]
            if child.name == name:
                yield from _walk(f"{path} {name}", child)


def _command_text(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = f"```text\n{usage}\n```\n\n{markdown(command.help)}\n"
    if isinstance(command, click.Group):
        others = [name for name, child in command.commands.items() if child.name != name]
        for other in others:
            text += (
                f"\n`{path} {other}` is another name of `{path} {command.commands[other].name}`."
            )
            text += "\n"
    records = [
        record
        for option in command.params
        if isinstance(option, click.Option) and (record := option.get_help_record(context))
    ]
    if records:
        text += "\n" + table(("option", "meaning"), ((code(name), text) for name, text in records))
    if path == "holdfast run":
        text += "\nEvery other [setting](settings.md) is a flag of `holdfast run` too.\n"
    return text


def exit_codes_page() -> str:
    """What each code means, and which errors lead to it."""
    rows = [
        (
            code(str(number)),
            meaning,
            codes(kind.__name__ for kind, one in EXIT_CODES.items() if one == number),
        )
        for number, meaning in MEANINGS.items()
    ]
    return (
        "# Exit codes\n\nThe exit codes of all commands. An error is one sentence on stderr; "
        "[errors](errors.md) lists what to do about each.\n\n"
        + table(("code", "meaning", "errors"), rows)
    )


def errors_page() -> str:
    """Every error class: what it means and what to do."""
    rows = [
        (
            f"{'&nbsp;' * 4 * depth}`{kind.__name__}`",
            code(kind.code),
            code(str(exit_code_of(kind))),
            markdown(kind.__doc__),
            ADVICE[kind.__name__],
        )
        for depth, kind in _tree(HoldfastError)
    ]
    reasons = [(code(name), str(one)) for name, one in failure.REASONS.items()]
    return (
        "# Errors\n\n"
        "All exceptions that Holdfast raises on purpose, as a tree: catching one catches those "
        "below it. `code` is stable. The message states what happened, to what, and what to do "
        "next. The common ones are in `holdfast`, all of them in `holdfast.model.errors`.\n\n"
        + table(("error", "code", "exit code", "meaning", "what to do"), rows)
        + "\n## Reasons of failures\n\n"
        "An exception of a task is not one of these: it becomes the failure of an attempt, with an "
        "`error_reason` and a class. Holdfast itself uses the reasons below; your own rules may "
        "add others. Transient and unknown failures are retried until the attempts are used up, "
        "deterministic ones are dead at once.\n\n" + table(("error_reason", "class"), reasons)
    )


def exit_code_of(kind: type[HoldfastError]) -> int:
    """Return the exit code of an error class."""
    return exit_code(kind.__new__(kind))


def _tree(kind: type[HoldfastError], depth: int = 0) -> Iterator[tuple[int, type[HoldfastError]]]:
    yield depth, kind
    for child in vars(errors).values():
        if isinstance(child, type) and kind in child.__bases__:
            yield from _tree(child, depth + 1)


# --- metrics, log events, alerts ----------------------------------------------------------------


def metrics_page() -> str:
    """Every metric."""
    rows = [
        (code(one.name), one.kind, codes(one.labels), one.help) for one in metrics.METRICS.values()
    ]
    return (
        "# Metrics\n\n"
        "In Prometheus' text format at `http://metrics_host:metrics_port/metrics` of the daemon, "
        "with `/health/live` and `/health/ready`. Counters count from the start of the daemon. "
        f"Labels are bounded: beyond {metrics.MAX_NAMES:,} values of one label, or "
        f"{metrics.MAX_SERIES:,} combinations, the rest is counted as `{metrics.OTHER}`. "
        "`process` is 1 for the process that owns the store, and 2, 3, … for its worker "
        "processes.\n\n"
        + table(("name", "type", "labels", "meaning"), rows)
        + "\n## Of the HTTP API\n\n"
        "At `/metrics` of `holdfast serve`, for that process alone, with the token of "
        "`--metrics-token-file` or a key that may see the counts of every tenant. It has "
        "`holdfast_build_info` too.\n\n"
        + table(
            ("name", "type", "labels", "meaning"),
            [
                (code(one.name), one.kind, codes(one.labels), one.help)
                for one in http_metrics.HTTP_METRICS.values()
            ],
        )
    )


def log_events_page() -> str:
    """Every log event and field."""
    events = sorted(log_events.EVENTS.values(), key=lambda event: event.name)
    rows = [
        (
            code(one.name) + (" Σ" if one.summed else ""),
            one.level,
            codes(one.fields),
            one.meaning,
            one.action,
        )
        for one in events
    ]
    return (
        "# Log events\n\n"
        "Everything that Holdfast itself logs, on standard error, as JSON or as readable text "
        "(`log_format`). Names and fields are stable. They never contain payloads, results, "
        "secrets or the texts of a task's exceptions: those are kept with the job.\n\n"
        f"Of events marked Σ the first {log_events.SUM_AFTER} in {log_events.SUM_SECONDS:g} "
        "seconds of each queue and error_reason are logged; `log.summed` has the number of the "
        "others.\n\n"
        + table(("event", "level", "fields", "meaning", "what to do"), rows)
        + "\n## Fields\n\n"
        + table(
            ("field", "meaning"),
            ((code(name), text) for name, text in log_events.FIELDS.items()),
        )
    )


def alerts_page() -> str:
    """Every alert rule."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    rows = [
        (
            code(rule["alert"]),
            rule["labels"]["severity"],
            code(" ".join(rule["expr"].split())) + (f" for {rule['for']}" if "for" in rule else ""),
            rule["annotations"]["action"],
            f"[{Path(url).stem}](../{url.removeprefix('docs/')})",
        )
        for group in groups
        for rule in group["rules"]
        for url in [rule["annotations"]["runbook_url"]]
    ]
    return (
        "# Alerts\n\n"
        "The rules in [deploy/prometheus/alerts.yaml](../../deploy/prometheus/alerts.yaml) are a "
        "starting point: adapt the thresholds to your service levels. "
        "[Operations](../operations.md#alerts) explains each.\n\n"
        + table(("alert", "severity", "when", "what to do first", "runbook"), rows)
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "python-api.md": python_api_page,
    "exit-codes.md": exit_codes_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "log-events.md": log_events_page,
    "alerts.md": alerts_page,
    "limits.md": limits_page,
}


def main() -> int:
    """Write every page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="Write nothing; exit 1 if a page is out of date."
    )
    checking = parser.parse_args().check
    old = []
    for name, make in PAGES.items():
        path, text = TARGET / name, MADE + make()
        if not path.exists() or path.read_text("utf-8") != text:
            old.append(name)
            if not checking:
                path.write_text(text, "utf-8")
    if checking and old:
        print(f"out of date: {', '.join(old)}: run make docs", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
