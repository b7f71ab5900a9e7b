"""Help, mistakes, settings, and what a command imports: for every command."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import __version__
from holdfast.cli.exit_codes import EXIT_CODES, MEANINGS, exit_code
from holdfast.cli.main import main
from holdfast.model import errors


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [path]
    group.list_commands(click.Context(group))  # which imports them
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, *path, name)
        else:
            found.append((*path, name))
    return found


EVERY_COMMAND = commands(main)


def test_there_are_the_commands_that_people_expect():
    assert {
        ("run",),
        ("serve",),
        ("enqueue",),
        ("status",),
        ("jobs", "show"),
        ("jobs", "explain"),
        ("journal", "verify"),
        ("journal", "dump"),
        ("journal", "salvage"),
        *(("jobs", name) for name in ("list", "cancel", "purge", "confirm", "reclaim", "edit")),
        *(("queues", name) for name in ("list", "pause", "resume", "set")),
        *(("workers", name) for name in ("list", "resize", "drain", "resume", "log-level")),
        *(("dead", name) for name in ("groups", "list", "show", "note", "archive", "restore")),
        *(("failed", name) for name in ("groups", "list", "show", "note", "archive", "restore")),
        *(("dead", name) for name in ("group", "ack", "fixed", "reopen", "assign", "forget")),
        *(("dead", name) for name in ("mute", "unmute")),
        *(("schedules", name) for name in ("list", "run", "skip", "pause", "resume")),
        *(("flags", name) for name in ("list", "set")),
        *(("outages", name) for name in ("list", "start", "end")),
        *(("audit", name) for name in ("list", "show", "verify")),
        *((name,) for name in ("replay", "validate", "doctor", "top", "bench", "completion")),
        ("dump",),
        ("load",),
        ("migrate",),
        ("move",),
    } <= set(EVERY_COMMAND)


def test_help_shows_the_exit_codes_and_every_command(hold):
    text = hold("--help").stdout
    for code, meaning in MEANINGS.items():
        assert f"{code}  {meaning}" in text
    for name in main.commands:
        assert f"  {name} " in text


def test_what_prints_lists_prints_json_too():
    for path in EVERY_COMMAND:
        command: click.Command = main
        for name in path:
            assert isinstance(command, click.Group)
            command = command.commands[name]
        if isinstance(command, click.Group) or path[-1] in ("run", "serve", "completion"):
            continue
        options = {option for one in command.params for option in one.opts}
        assert "--json" in options, path
        if path[-1] in ("list", "groups"):
            assert "--ndjson" in options, path


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("path", EVERY_COMMAND, ids=" ".join)
def test_every_command_has_help_that_says_what_it_does(hold, path, flag):
    result = hold(*path, flag)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {' '.join(path)}".rstrip())
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    assert command.help
    first = command.help.split("\n\n")[0]
    assert first[0].isupper()
    assert first.rstrip().endswith(".")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "tenant":
            assert parameter.help, parameter.name


def test_the_version_is_said(hold):
    assert hold("--version").stdout == f"holdfast, version {__version__}\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nothing",), "No such command 'nothing'"),
        (("status", "--jsno"), "--jsno"),
        (("--stroe", "x", "status"), "--stroe"),
        (("jobs", "show"), "Missing argument 'ID'"),
        (("jobs", "shwo", "a"), "No such command 'shwo'"),
        (("enqueue", "-f", "nowhere.json"), "No such file or directory"),
        (("enqueue", "-f", "."), "Is a directory"),
        (("run", "--workers", "many"), "'many' is not a valid integer"),
        (("run", "--sync", "sometimes"), "'sometimes' is not one of"),
        (("status", "a", "b"), "Got unexpected extra argument"),
    ],
)
def test_a_slip_of_the_hand_is_exit_2_and_says_so(hold, args, said):
    result = hold(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize(
    ("args", "environ", "said"),
    [
        (("--store", "redis://x", "status"), {}, "store: 'redis://x' is neither"),
        (("--store", "", "status"), {}, "(flag --store)"),
        (
            ("status",),
            {"HOLDFAST_WORKER_COUNT": "many"},
            "worker_count: 'many' is not a whole number (environment HOLDFAST_WORKER_COUNT)",
        ),
        (("status",), {"HOLDFAST_LEASE_SECONDS": "-1"}, "(environment HOLDFAST_LEASE_SECONDS)"),
        (("status",), {"OUTBOX_RUN_SECONDS": "x"}, "(environment OUTBOX_RUN_SECONDS)"),
        (("run", "--workers", "0"), {}, "worker_count: 0 is not a whole number from 1"),
        (("run", "-t", "soon"), {}, "task_timeout_seconds: 'soon' is not a duration"),
        (("run", "--queues", "mail:x"), {}, "queues:"),
        (("run", "--queues", "a", "--queue", "b"), {}, "give --queues or --queue, not both"),
        (("run", "--queue", "a", "--queue", "a"), {}, "names 'a' twice"),
        (("run", "--metrics-port", "http"), {}, "metrics_port: 'http'"),
        (("run", "--log-level", "loud"), {}, "log_level: 'loud' is not one of"),
        (("status", "--interval", "x"), {}, "interval: 'x' is not a duration"),
        (("--config", "nowhere.yaml", "status"), {}, "nowhere.yaml cannot be read"),
        (("--config", "odd.ini", "status"), {}, "odd.ini does not end in"),
    ],
)
def test_a_wrong_setting_names_the_field_and_where_it_came_from(
    hold, monkeypatch, args, environ, said
):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    result = hold(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_the_settings_file_of_the_directory_is_read(hold, here):
    (here / "configs").mkdir()
    (here / "configs" / "default.yaml").write_text("store: elsewhere\n")
    assert hold("enqueue", stdin="{}").exit_code == 0
    assert (here / "elsewhere" / "log").is_dir()
    assert not (here / "data").exists()
    (here / "configs" / "default.yaml").write_text("worker_cuont: 8\n")
    result = hold("status")
    assert result.exit_code == 2
    assert "worker_cuont: not a setting; did you mean worker_count?" in result.stderr
    assert "configs/default.yaml" in result.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def f(:\n", "SyntaxError"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'"),
        ("raise SystemExit(0)\n", "SystemExit"),
        ("x = 1\n", "has no 'app'"),
        ("app = 7\n", "has no 'app'"),
    ],
)
def test_an_application_that_cannot_be_read_is_a_sentence_with_the_place(hold, here, source, said):
    (here / "broken_cli.py").write_text(source)
    for args in (("run", "broken_cli.py"), ("enqueue", "--app", "broken_cli.py")):
        result = hold(*args, stdin="{}")
        assert result.exit_code == 2
        assert said in result.stderr
        assert "broken_cli" in result.stderr


def test_every_error_of_ours_has_an_exit_code_that_is_not_success():
    def family(kind: type[errors.HoldfastError]) -> set[type[errors.HoldfastError]]:
        return {kind}.union(*map(family, kind.__subclasses__()))

    ours = {kind for kind in family(errors.HoldfastError) if kind.__module__ == errors.__name__}
    assert set(EXIT_CODES) == ours
    assert set(EXIT_CODES.values()) == {1, 2, 3, 4, 5}
    assert set(MEANINGS) == {0, 1, 2, 3, 4, 5}
    assert exit_code(errors.JobNotFound("a")) == 3
    assert exit_code(errors.DuplicateId(["a"])) == 4
    assert exit_code(errors.PayloadInvalid("a", "b")) == 2
    assert exit_code(errors.UnknownTask("a", [])) == 2
    assert exit_code(errors.NoOwner("a")) == 5
    assert exit_code(errors.StorageFull("a")) == 5
    assert exit_code(errors.HoldfastError("a")) == 1

    class Newer(errors.StorageError):
        """One that the table does not know yet."""

    assert exit_code(Newer("a")) == 5
    assert exit_code(errors.InvariantViolation("a")) == 1


# --- anything may be typed ---------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("run", "enqueue", "status", "jobs", "show", "journal", "verify", "dump", "salvage"),
        *("--json", "--store", "--config", "-f", "-", "--app", "--tenant", "--snapshot"),
        *("--skip-duplicates", "--interval", "--run-seconds", "--queues", "a:b", "memory:"),
        *("", "0", "-1", "1e999", "x" * 300, "ü\n", "nowhere.yaml", "json:dumps", "a\ud800"),
    ]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(args=st.lists(WORDS, max_size=6), text=st.binary(max_size=30))
def test_no_arguments_at_all_end_in_a_traceback(here, args, text):
    if "--run-seconds" in args or ("run" in args and not {"-h", "--help"} & set(args)):
        args = ["--help", *args]  # one that starts would not end
    result = CliRunner().invoke(main, args, input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in range(6)
    assert "Traceback" not in result.output
    assert "This was not foreseen" not in result.output, (args, result.output)
    if result.exit_code:
        assert result.stderr


# --- as a program ------------------------------------------------------------------------------


def modules_of(directory: Path, *args: str, stdin: str = "") -> set[str]:
    """Run a command in a process of its own; return the modules that it has imported."""
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))\n"
        "from holdfast.cli.main import main\n"
        "main()\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=directory,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    line = next(line for line in found.stderr.splitlines() if line.startswith("MODULES"))
    return set(line.split()[1:])


HEAVY = {"holdfast.http", "rich", "yaml", "prometheus_client", "structlog", "hypothesis"}


@pytest.mark.parametrize(
    ("args", "stdin"),
    [
        (("--help",), ""),
        (("status",), ""),
        (("status", "--json"), ""),
        (("enqueue",), "{}"),
        (("jobs", "show", "a"), ""),
        (("journal", "verify"), ""),
        (("jobs", "list"), ""),
        (("jobs", "list", "--json", "--status", "failed"), ""),
        (("dead", "groups"), ""),
        (("queues", "list"), ""),
        (("queues", "pause", "default", "--reason", "why"), ""),
        (("flags", "list"), ""),
        (("outages", "list"), ""),
        (("audit", "list"), ""),
        (("replay", "--reason", "why"), ""),
        (("doctor",), ""),
        (("validate",), ""),
    ],
)
def test_plain_commands_import_nothing_heavy(hold, here, args, stdin):
    hold("enqueue", stdin='{"id":"a"}')
    assert not modules_of(here, *args, stdin=stdin) & HEAVY


@pytest.mark.parametrize(
    "args", [("status",), ("jobs", "list"), ("dead", "groups"), ("queues", "list"), ("--help",)]
)
def test_looking_does_not_import_the_daemon_nor_what_runs_tasks(hold, here, args):
    """What keeps the start of a plain command under a quarter of a second."""
    hold("enqueue", stdin='{"id":"a"}')
    found = modules_of(here, *args)
    needless = {
        "holdfast.daemon.daemon",
        "holdfast.http.server",
        "holdfast.engines.journal.engine",
        "holdfast.engines.journal.wal.group_commit",
        "holdfast.worker.slot_pool",
        "holdfast.worker.schedules",
        "holdfast.app",
        "cronsim",
        "zoneinfo",
        "ssl" if args == ("--help",) else "http.client",
    }
    assert not found & needless
    if args == ("--help",):
        assert not {"asyncio", "sqlite3", "holdfast.settings", "holdfast.engines"} & found


def test_through_a_daemon_nothing_of_the_journal_is_imported(daemon, here):
    found = modules_of(here, "--store", str(daemon.store), "jobs", "list")
    assert "holdfast.engines.client.engine" in found
    assert not {"sqlite3", "holdfast.engines.journal", "rich", "holdfast.http"} & found


def test_yaml_is_imported_only_for_a_file_of_that_kind(hold, here):
    (here / "mine.yaml").write_text("worker_count: 3\n")
    assert "yaml" in modules_of(here, "--config", "mine.yaml", "status")
    (here / "mine.toml").write_text("worker_count = 3\n")
    assert "yaml" not in modules_of(here, "--config", "mine.toml", "status")


def program(*args: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *args]


def test_the_program_runs_as_a_module_and_by_its_name(here):
    for command in (
        program("--version"),
        [str(Path(sys.executable).parent / "holdfast"), "--version"],
    ):
        found = subprocess.run(
            command, cwd=here, capture_output=True, text=True, timeout=60, check=True
        )
        assert found.stdout.endswith(f"version {__version__}\n")


def test_a_reader_that_leaves_early_is_no_error(hold, here):
    jobs = "\n".join("{}" for _ in range(3_000))
    hold("enqueue", stdin=jobs)
    with subprocess.Popen(
        program("journal", "dump", "--json"),
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert '"ENQUEUE"' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(20) == 0


def test_status_is_shown_again_and_again_until_it_is_interrupted(hold, here):
    hold("enqueue", stdin="{}")
    with subprocess.Popen(
        program("status", "--watch", "--json", "--interval", "100ms"),
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As at a terminal: what runs in the background of a shell would ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(3):
            assert json.loads(process.stdout.readline())["pending"] == 1
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
        assert process.wait(20) == 0


def test_run_ends_by_itself_if_asked_and_says_what_it_does(here):
    found = subprocess.run(
        program(
            "run", "-w", "3", "-t", "3s", "-s", "2s", "--metrics-port", "0", "--run-seconds", "0.2"
        ),
        cwd=here,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOLDFAST_LOG_LEVEL": "error"},
    )
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert lines[0].startswith("holdfast started: store ./data (sync=always), 0 jobs recovered")
    assert lines[1].startswith("metrics: http://127.0.0.1:")
    assert lines[2] == "workers: 3, queues: all"
    assert lines[3].startswith("stopping: 0 running")
    assert lines[4] == "holdfast stopped"


def test_an_unknown_default_task_is_refused_at_the_start(here):
    found = subprocess.run(
        program("run", "--metrics-port", "off", "--run-seconds", "1"),
        cwd=here,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOLDFAST_DEFAULT_TASK": "nowhere"},
    )
    assert found.returncode == 2
    assert "no task is named 'nowhere'" in found.stderr
    assert "Traceback" not in found.stderr
