"""Writes docs/reference/ from what the code itself says: `make docs`, or `--check` to compare.

Everything comes from the places that the program goes by: the settings' struct and readers, the
tree of commands, the error classes, the catalogues of metrics and log events, the alert rules.
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
from msgspec.structs import replace

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
    written,
)
from holdfast.settings.parsers import READERS
from holdfast.telemetry import metrics

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
MADE = "<!-- Made by scripts/reference.py from the code: change that, then run `make docs`. -->\n\n"
YEAR_SECONDS = 365 * 86_400.0

SETTINGS_INTRODUCTION = """# Settings

One name, four doors: the key in the file (`configs/default.yaml`, or `--config FILE`; YAML or
TOML), `HOLDFAST_…` in the environment, the flag of `holdfast run`. What a setting is also called
works at every door. A flag wins over the environment, the environment over the file, the file over
the default. Durations are written `500ms`, `3s`, `2m`, `1h30m`, or as plain seconds. What cannot be
read is an error that names the field, the value and where it came from.

`holdfast config show --origin` prints what holds and why, `config check` everything that is wrong,
`config diff` what differs from the defaults and from the running daemon, `config reload` (or
SIGHUP) takes over what can change.

"""

CLI_INTRODUCTION = """# Commands

`--help` of any command says the same. Commands work with the daemon up and without it; those about
the daemon itself (`workers resize|drain|resume`, `config reload`) need one. `--json` prints one
document, `--ndjson` an object per line. Without a terminal nothing is asked and nothing is coloured
(`NO_COLOR` too). A change is kept with who made it (`--by`) and why (`--reason`).
[Exit codes](exit-codes.md).

"""

FORMS: Mapping[str, str] = {
    "store": "a directory, or `memory:`",
    "wal_path": "the path of a file, in the store's directory",
    "snapshot_path": "the path of a file",
    "queues": "names, with slots if you like: `mail:8,slow:2`; in a file also a list",
    "worker_id": "a name",
    "default_task": "the name of a task",
    "metrics_host": "a loopback address: `127.0.0.1`, `::1` or `localhost`",
    "flags": "a mapping of names to `on` or `off`; in one line `auto_replay=on,fast=off`",
}
"""What a setting takes that is neither a number, a duration nor one of a few words."""

ADVICE: Mapping[str, str] = {
    "HoldfastError": "Catch this one to catch them all.",
    "InvalidInput": "Mend the field that the message names (`.field`, `.problem`).",
    "PayloadInvalid": "Send a JSON object: `{}` at least, no list, no bare value.",
    "UnknownDependency": "Enqueue the other job first, or both in one call.",
    "TooLarge": "Keep the big thing elsewhere and send its address; send batches in parts.",
    "AccessDenied": "Ask with a caller whose tenant and scopes reach it.",
    "DuplicateId": "Nothing, if it was the same request again; else choose another id.",
    "LeaseLost": "Stop working on the job: somebody else has it. Raise `lease_seconds` if often.",
    "IllegalTransition": "Look at the job's state first: `holdfast jobs show ID`.",
    "StaleVersion": "Read the job again and decide anew.",
    "ChangedMeanwhile": "Look at what holds now and decide anew.",
    "StorageError": "The message says what the disk said. `holdfast doctor` says what to do.",
    "StorageFull": "Make room. What is under way goes on; enqueue works again by itself.",
    "DurabilityLost": "See to the disk, then start the daemon again: it recovers what was safe.",
    "CorruptLog": "Restore from a dump, or `holdfast journal verify`, then `salvage`.",
    "CorruptHistory": "Restore the file, or start with `--history anew`: it is set aside.",
    "HistoryMissing": "Put the file back, or start with `--history anew`.",
    "UnknownFormat": "Use the version that wrote it, or a newer one.",
    "CorruptDump": "Take another copy of the dump, or dump again.",
    "DirectoryInUse": "Talk to the owner instead (commands do), or stop it first.",
    "Unavailable": "Try again later; look with `holdfast status` before you repeat a change.",
    "NoOwner": "Start `holdfast run`, or own the store yourself: `Holdfast(own=True)`.",
    "UnknownTask": "Name a registered task, or deploy the code that has it first.",
    "JobNotFound": "Check id and tenant; finished jobs go after `remember_seconds`.",
    "UnknownSchedule": "`holdfast schedules list` names those that are known.",
    "JobFailed": "`holdfast dead show ID` says why; mend it, then replay.",
    "ResultTimeout": "The job goes on: wait longer, or look at it later by its id.",
    "WrongLoop": "Use `await task.enqueue(...)` on the loop, `enqueue_sync` off it.",
    "EngineClosed": "Do not use the application after `close()`.",
    "InvariantViolation": "Report it, with the message and `holdfast journal verify`.",
}
"""What to do about each error. One that is missing here fails the generator."""


# --- Markdown -----------------------------------------------------------------------------------


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; cells may have anything in them."""
    cells = [list(headings)]
    cells.append(["---"] * len(cells[0]))
    cells += [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def code(text: str) -> str:
    """Return text as code."""
    return f"`{text}`"


def codes(texts: Iterable[str]) -> str:
    """Return texts as code, in a row."""
    return ", ".join(map(code, texts))


def said(docstring: str | None) -> str:
    """Return a docstring, or its like, as Markdown."""
    text = inspect.cleandoc(docstring or "").replace("\b\n", "").replace("``", "`")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


# --- settings -----------------------------------------------------------------------------------


def settings_page() -> str:
    """Every key: what it takes, by which names, and whether it can change while running."""
    names = Settings.__struct_fields__
    meanings = _field_docstrings()
    parts = [
        SETTINGS_INTRODUCTION,
        table(
            ("setting", "default", "changes while running"),
            (
                (
                    f"[`{name}`](#{name})",
                    code(written(name, DEFAULTS[name])),
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
    yield "default", code(written(name, DEFAULTS[name]))
    yield "takes", _taken(name)
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
    """Return what is said of a value, or nothing if it is taken."""
    try:
        READERS[name](name, value)
    except InvalidInput as error:
        return error.problem
    return ""


def _taken(name: str) -> str:
    """Return what a setting takes, found by asking it."""
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
        text = f"one of {codes(complaint.partition('is not one of ')[2].split(', '))}"
    nothing = [word for word in ("null", "off", "none") if _is_none(name, word)]
    return text + (f"; or {codes(nothing)}" if nothing else "")


def _is_none(name: str, word: str) -> bool:
    value = None if word == "null" else word
    return not _refused(name, value) and READERS[name](name, value) is None


def _durations(name: str) -> str:
    text = "a duration" + (", 0 included" if not _refused(name, 0) else " above 0")
    if least := re.search(r"less than ([\d.]+) seconds", _refused(name, 1e-9)):
        text = f"a duration from {written(name, float(least[1]))}"
    if most := re.search(r"up to ([\d.e+]+)", _refused(name, YEAR_SECONDS)):
        text += f", at most {written(name, float(most[1]))}"
    try:
        replace(Settings(), **{name: YEAR_SECONDS})
    except InvalidInput as error:
        if other := re.search(r"is more than (\w+)", error.problem):
            text += f", and no more than `{other[1]}`"
    return text


def _field_docstrings() -> dict[str, str]:
    """Return the text under each field of the struct."""
    (struct,) = ast.parse(inspect.getsource(fields.Settings)).body
    assert isinstance(struct, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(struct.body, struct.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr), field.target.id
            assert isinstance(text.value, ast.Constant)
            meaning = said(str(text.value.value)).replace(" See `queue_slots`.", "")
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
    text = f"```text\n{usage}\n```\n\n{said(command.help)}\n"
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
    """What each code means, and which errors end in it."""
    rows = [
        (
            code(str(number)),
            meaning,
            codes(kind.__name__ for kind, one in EXIT_CODES.items() if one == number),
        )
        for number, meaning in MEANINGS.items()
    ]
    return (
        "# Exit codes\n\nOf every command. Errors are one sentence on standard error; "
        "[errors](errors.md) says what to do about each.\n\n"
        + table(("code", "meaning", "errors"), rows)
    )


def errors_page() -> str:
    """Every error class: what it means and what to do."""
    rows = [
        (
            f"{'&nbsp;' * 4 * depth}`{kind.__name__}`",
            code(kind.code),
            code(str(exit_code_of(kind))),
            said(kind.__doc__),
            ADVICE[kind.__name__],
        )
        for depth, kind in _tree(HoldfastError)
    ]
    reasons = [(code(name), str(one)) for name, one in failure.REASONS.items()]
    return (
        "# Errors\n\n"
        "Everything that Holdfast raises on purpose, as a tree: whoever catches one catches what "
        "stands under it. `code` is stable. The message says what happened, to what, and what to "
        "do next. The common ones are in `holdfast`, all of them in `holdfast.model.errors`.\n\n"
        + table(("error", "code", "exit code", "meaning", "what to do"), rows)
        + "\n## Reasons of failures\n\n"
        "What a task raises is not one of these: it becomes the failure of an attempt, with an "
        "`error_reason` and a class. These are the reasons that Holdfast itself gives; your own "
        "rules may give others. Transient and unknown failures are tried again until the attempts "
        "are used up, deterministic ones are dead at once.\n\n"
        + table(("error_reason", "class"), reasons)
    )


def exit_code_of(kind: type[HoldfastError]) -> int:
    """Return the exit code of a class of errors."""
    return exit_code(kind.__new__(kind))


def _tree(kind: type[HoldfastError], depth: int = 0) -> Iterator[tuple[int, type[HoldfastError]]]:
    yield depth, kind
    for child in vars(errors).values():
        if isinstance(child, type) and kind in child.__bases__:
            yield from _tree(child, depth + 1)


# --- what is counted and said -------------------------------------------------------------------


def metrics_page() -> str:
    """Every metric."""
    rows = [
        (code(one.name), one.kind, codes(one.labels), one.help) for one in metrics.METRICS.values()
    ]
    return (
        "# Metrics\n\n"
        "In Prometheus' text format at `http://metrics_host:metrics_port/metrics` of the daemon, "
        "with `/health/live` and `/health/ready`. Counters count from the start of the daemon. "
        f"Labels are bounded: beyond {metrics.MOST_NAMES:,} values of one label, or "
        f"{metrics.MOST_SERIES:,} combinations, the others are `{metrics.OTHER}` together. "
        "`process` is 1 for the process that owns the store, and 2, 3, … for its worker "
        "processes.\n\n" + table(("name", "type", "labels", "meaning"), rows)
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
        "Every line that Holdfast itself logs, on standard error, as JSON or for people "
        "(`log_format`). Names and fields are stable. Payloads, results, secrets and the texts of "
        "a task's exceptions are never in them: those are kept with the job.\n\n"
        f"Of events marked Σ the first {log_events.SUM_AFTER} in {log_events.SUM_SECONDS:g} "
        "seconds of each queue and error_reason are written; `log.summed` says how many more "
        "there were.\n\n"
        + table(("event", "level", "fields", "meaning", "what to do"), rows)
        + "\n## Fields\n\n"
        + table(
            ("field", "meaning"),
            ((code(name), text) for name, text in log_events.FIELDS.items()),
        )
    )


def alerts_page() -> str:
    """Every alert rule that is delivered."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    rows = [
        (
            code(rule["alert"]),
            rule["labels"]["severity"],
            code(" ".join(rule["expr"].split())) + (f" for {rule['for']}" if "for" in rule else ""),
            rule["annotations"]["action"],
        )
        for group in groups
        for rule in group["rules"]
    ]
    return (
        "# Alerts\n\n"
        "The rules in [deploy/prometheus/alerts.yaml](../../deploy/prometheus/alerts.yaml): a "
        "start, with thresholds to be adapted to what you have promised. "
        "[Operations](../operations.md#alerts) says more on each.\n\n"
        + table(("alert", "severity", "when", "what to do first"), rows)
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "exit-codes.md": exit_codes_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "log-events.md": log_events_page,
    "alerts.md": alerts_page,
}


def main() -> int:
    """Write every page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="Write nothing; exit 1 if one is old.")
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
