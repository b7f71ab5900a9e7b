"""Bad input, generated over every command: a sentence, the right exit code, nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import main

from .shop import EVENT, GROUP, OPERATION

WHY = ("--by", "ops", "--reason", "why")
HUGE = "x" * 100_000
NAMES = ("", "two\nlines", "x" * 300, "nul\0", "\udcff\udcfe")
TEXTS = ("", "  ", HUGE, "half \udcff")
NUMBERS = ("x", "-1", "1.5", "99999999999999999999999", "½", "")
TIMES = ("soon", "-1h", "2027-13-45", "1h2", "", "9" * 30 + "d", "nul\0", HUGE)

BAD: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ids", "job_id", "queue", "name", "tenant", "named", "queues"), NAMES),
    **dict.fromkeys(("tasks", "keys", "error_reasons"), NAMES),
    **dict.fromkeys(("by", "reason"), TEXTS),
    **dict.fromkeys(("limit", "version", "max_attempts", "slots", "after", "number"), NUMBERS),
    "roles": ("root", "", HUGE),
    "tenants": NAMES,
    "scopes": ("a//b", "/", "x" * 2_000),
    **dict.fromkeys(("expires_in", "overlap"), ("soon", "-1", "", "1y", "nan")),
    "priority": ("x", "1.5", "99999999999", "½", ""),
    "text": ("", HUGE, "half \udcff"),
    "fixed": TEXTS[1:],
    "fixed_in": TEXTS,
    **dict.fromkeys(("max_in_flight", "max_per_key", "max_per_tenant", "jobs"), NUMBERS),
    **dict.fromkeys(("created_since", "created_until", "run_at"), TIMES),
    **dict.fromkeys(("finished_since", "finished_until"), TIMES),
    **dict.fromkeys(("interval", "patience"), ("soon", "-1", "", "1y", "nan")),
    "states": ("nonsense", "", "dead,nonsense", HUGE),
    "state": ("nonsense", ""),
    "group_states": ("nonsense", "", "open,nonsense", HUGE),
    "statuses": ("x", "99", "600", "-1", "", HUGE),
    "group": ("", "nonsense", "g-", "g-0000000000", HUGE),
    "group_id": ("", "nonsense", "g-0000000000", "two\nlines", HUGE),
    "classes": ("nonsense", "", "x,y"),
    "scope": ("a//b", "/", "nul\0", "x" * 2_000),
    "fingerprint": (HUGE,),
    "where": ("nonsense", "quue:mail", "queue:", "status:nonsense", '"', "half \udcff", HUGE),
    "order": ("nonsense", "", "newest", HUGE),
    "cap": NUMBERS,
    **dict.fromkeys(("requests_per_minute", "key_rate", "tenant_rate", "tenant_jobs"), NUMBERS),
    "attempts": ("x", "-1", "1-", "5+5", "", "9" * 40),
    "cursor": ("nonsense", "AAAA", "\udcff", "ü"),
    "rate": ("10", "x/s", "0/s", "10/0s", "10/x", "", "9" * 30 + "/s"),
    "expect": NUMBERS,
    "canary": (*NUMBERS, "0", "101"),
    "abort_above": ("x", "-1", "120%", "", "nan"),
    "as_of": TIMES,
    "assignments": (
        "x",
        "locale=en",
        "payload.=1",
        "payload=1",
        "payload..a=1",
        "payload.a=\udcff",
    ),
    "removals": ("x", "payload", "payload.", "", "\udcff"),
    **dict.fromkeys(("operation_id", "old_task", "new_task"), NAMES),
    **dict.fromkeys(("event_types", "key", "entity", "actor", "request_id"), NAMES),
    "event_id": (*NAMES, "7"),
    "event_type": (*NAMES, "book.opend"),
    "correlation_id": NAMES,
    "groups": ("nonsense", ""),
    "pending": ("nonsense", ""),
    "max_errors": NUMBERS,
    "head": ("nonsense", "1:0", "x:y", "-1:" + "0" * 64),
    "file": ("nowhere/below.json", ".", ""),
    "payload": ("nowhere.json", ".", "nowhere/below"),
    "directory": ("nowhere", "nowhere/below"),
    "sync": ("sometimes", ""),
    "target": ("", "nul\0"),
    "shell": ("tcsh", ""),
    "from_place": ("", "nul\0", "redis://x", "memory:", "nonsense", "\udcff"),
    "to_place": ("", "nul\0", "redis://x", "memory:"),
    "app": ("nowhere.py", "nowhere:app", "", "json:dumps"),
}
"""Values that can only be refused, by the name of the parameter."""

ANYTHING = ("", "nonsense", "\udcff", "-1", HUGE)
"""For parameters that are not named above: it must not end in a traceback."""

ARGUMENTS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("jobs", "show"): ("p1",),
    ("jobs", "explain"): ("p1",),
    ("audit", "show"): ("1",),
    ("jobs", "cancel"): ("p1", *WHY),
    ("jobs", "purge"): ("done", *WHY, "--yes"),
    ("jobs", "confirm"): ("held", *WHY),
    ("jobs", "reclaim"): ("flying", *WHY),
    ("jobs", "edit"): ("k2", "--max-attempts", "7", *WHY),
    ("dead", "show"): ("d1",),
    ("dead", "note"): ("d1", "a note", "--by", "ops"),
    **{("dead", name): (GROUP, *WHY) for name in ("ack", "reopen", "assign", "unmute", "forget")},
    ("dead", "group"): (GROUP,),
    ("dead", "fixed"): (GROUP, "--in", "v7", *WHY),
    ("dead", "mute"): (GROUP, "--for", "1h", *WHY),
    ("dead", "archive"): ("d1", *WHY),
    ("dead", "restore"): ("--all", *WHY),
    ("dead", "edit"): ("d1", "--set", "payload.to=bob", *WHY, "--yes"),
    ("dead", "try"): ("d2", "--app", "tests.cli.letters:app"),
    ("jobs", "retarget"): ("report", "mail", *WHY, "--yes"),
    ("operations", "show"): (OPERATION,),
    ("operations", "pause"): (OPERATION, *WHY),
    ("operations", "resume"): (OPERATION, *WHY),
    ("operations", "rate"): (OPERATION, "3/m", *WHY),
    ("operations", "abort"): (OPERATION, *WHY),
    ("replay",): ("d1", *WHY),
    ("queues", "pause"): ("mail", *WHY),
    ("queues", "resume"): ("mail", *WHY),
    ("queues", "set"): ("mail", "--fair", *WHY),
    ("queues", "series"): ("mail",),
    ("workers", "resize"): ("3", *WHY),
    ("workers", "drain"): WHY,
    ("workers", "resume"): WHY,
    ("workers", "log-level"): ("debug", *WHY),
    ("schedules", "run"): ("nightly", *WHY),
    ("schedules", "skip"): ("nightly", *WHY),
    ("schedules", "pause"): ("nightly", *WHY),
    ("schedules", "resume"): ("nightly", *WHY),
    ("flags", "set"): ("f", "on", *WHY),
    ("keys", "create"): ("ci", "--role", "viewer", *WHY),
    ("keys", "rotate"): ("ci", *WHY),
    ("keys", "revoke"): ("ci", *WHY),
    ("outages", "start"): ("mail", *WHY),
    ("outages", "end"): ("mail", *WHY),
    ("events", "show"): (EVENT,),
    ("events", "correct"): (EVENT, "--set", "payload.page=2", *WHY),
    ("catalog", "show"): ("book.opened",),
    ("chronicle", "search"): ("opened",),
    ("chronicle", "show"): (EVENT,),
    ("projection", "new"): ("titles",),
    ("projections", "show"): ("chronicle",),
    ("projections", "outbox"): ("chronicle",),
    ("projections", "rows"): ("titles", "--app", "tests.cli.shelf:app"),
    ("projections", "rollback"): ("chronicle", *WHY),
    ("projections", "remove"): ("chronicle", "--pending", "cancel", *WHY),
    ("rebuild",): ("chronicle", *WHY),
    ("dump",): ("out.dump",),
    ("load",): ("in.dump",),
    ("move",): ("--from", "nowhere", "--to", "elsewhere", "--yes"),
    ("journal", "salvage"): ("saved",),
    ("completion",): ("bash",),
    ("top",): ("--once",),
}
"""What makes each command a good one, if anything is needed."""

STORELESS = {
    ("bench",),
    ("completion",),
    ("runbook",),
    ("migrate",),
    ("move",),
    ("run",),
    ("serve",),
    *(("catalog", verb) for verb in ("list", "show", "check")),
    ("projection", "new"),
    *(("config", verb) for verb in ("show", "check", "diff", "reload")),
}
"""What does not read a store that is a directory."""


def leaves(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    group.list_commands(click.Context(group))  # which imports them
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            if name != "failed":  # the same group by another name
                yield from leaves(command, *path, name)
        else:
            yield (*path, name), command


LEAVES = dict(leaves(main))
STARTING = {("run",), ("serve",)}
EVERY = [pytest.param(path, id=" ".join(path)) for path in LEAVES if path not in STARTING]
"""But those that would start, whose settings are refused elsewhere."""
WITH_STORE = [one for one in EVERY if one.values[0] not in STORELESS]


def typed(store: Path | str, *args: str) -> Result:
    """Type a command that cannot work."""
    result = CliRunner().invoke(main, ["--store", str(store), *args], input="")
    said = result.output.encode("utf-8", "replace").decode()
    shown = [arg[:40] for arg in args]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(shown) from result.exception
    assert "Traceback" not in said, shown
    assert "This was not foreseen" not in said, (shown, said[-500:])
    assert result.exit_code in range(6), shown
    if result.exit_code:
        assert said.strip(), shown
        assert len(said) < 20_000, shown
    return result


def mutations(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[list[str], bool]]:
    """Yield commands with one thing wrong, and whether that can only be refused."""
    base = list(ARGUMENTS.get(path, ()))
    yield [*base, "--no-such-option"], True
    yield (
        [*base, *["one", "too", "many"] * 3],
        not any(isinstance(one, click.Argument) and one.nargs == -1 for one in command.params),
    )
    place = 0
    for parameter in command.params:
        known = BAD.get(parameter.name or "")
        for value in known if known is not None else ANYTHING:
            if isinstance(parameter, click.Argument):
                changed = base.copy()
                changed[place : place + 1] = [value]
                yield ["--", *changed] if value.startswith("-") else changed, known is not None
            elif isinstance(parameter, click.Option) and not parameter.is_flag:
                yield [*base, parameter.opts[0], value], known is not None
        if isinstance(parameter, click.Argument):
            place += 1
            if parameter.required:
                yield base[: place - 1], True


def content(shop) -> tuple[object, ...]:
    """Everything in the store that a command could have changed."""
    names = (
        ("jobs", "list", "--limit", "1000"),
        ("queues", "list"),
        ("flags", "list"),
        ("outages", "list", "--ended"),
        ("schedules", "list"),
        ("audit", "list"),
        ("dead", "groups"),
        ("operations", "list"),
    )
    return tuple(shop.run(*name, "--json").stdout for name in names)


@pytest.mark.parametrize("path", EVERY)
def test_one_thing_wrong_is_refused_and_changes_nothing(closed_shop, here, path):
    before = content(closed_shop)
    files = sorted(file.name for file in here.iterdir())
    for args, refused in mutations(path, LEAVES[path]):
        result = typed(closed_shop.path, *path, *args)
        if refused:
            # Without a daemon there are no workers, whatever is asked of them.
            codes = (2, 3, 4, 5) if path[0] == "workers" else (2, 3, 4)
            assert result.exit_code in codes, (path, [arg[:40] for arg in args], result.output)
    assert content(closed_shop) == before
    assert sorted(file.name for file in here.iterdir()) == files


@pytest.mark.parametrize("path", WITH_STORE)
def test_a_store_that_cannot_be_used_is_a_sentence(closed_shop, here, path):
    (here / "file").write_text("no directory")
    damaged = here / "damaged"
    closed_shop.path.rename(damaged)
    first = min((damaged / "log").iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:200] + b"\xff" * 100 + data[300:])
    log = {file.name: file.read_bytes() for file in (damaged / "log").iterdir()}
    base = ARGUMENTS.get(path, ())
    for store in ("file", "file/below", damaged, "nul\0", "", "redis://x", "memory:"):
        result = typed(store, *path, *base)
        if path == ("journal", "salvage") and store == damaged:
            continue  # that is what it is for
        assert result.exit_code, (store, path, result.output)
    assert log == {file.name: file.read_bytes() for file in (damaged / "log").iterdir()}
    assert (here / "file").read_text() == "no directory"


def test_a_store_that_the_system_refuses_is_a_sentence(closed_shop, monkeypatch):
    """As a directory without rights does, also for those who run tests as root."""

    def refuse(_disk: object, place: str) -> list[str]:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr("holdfast.engines.journal.wal.disk.LocalDisk.names", refuse)
    for path in LEAVES:
        if path not in STORELESS and path != ("load",):
            result = typed(closed_shop.path, *path, *ARGUMENTS.get(path, ()))
            assert result.exit_code in (1, 5), (path, result.output)


def test_the_control_a_good_command_is_not_refused(closed_shop):
    """Each of the commands above works as it stands there, so that only the one thing is wrong."""
    skipped = {
        ("run",),
        ("serve",),
        ("bench",),
        ("load",),
        ("migrate",),
        ("move",),
        ("schedules", "run"),
    }
    places = {
        ("rebuild",): -1,  # it fills the chronicle
        ("projections", "rollback"): 1,
        ("projections", "remove"): 2,
        ("keys", "create"): -1,
        ("keys", "revoke"): 1,
        ("audit", "show"): 3,  # once it has entries
    }
    for path in sorted(LEAVES, key=lambda path: places.get(path, 0)):
        if path in skipped or path[0] == "workers" or path[0] == "config":
            continue
        if path[0] == "schedules" and path[1] != "list":
            continue
        result = typed(closed_shop.path, *path, *ARGUMENTS.get(path, ()))
        assert result.exit_code == 0, (path, result.output)
