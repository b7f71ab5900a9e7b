"""``validate``, ``doctor``, ``top``, ``bench`` and ``completion``."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from types import SimpleNamespace

import pytest

from holdfast.cli import doctor_checks, store_access
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.job import NewJob
from holdfast.settings import Settings

from .conftest import invoke

WHY = ("--by", "ops", "--reason", "why")


def verdicts(found: dict) -> dict[str, str]:
    order = ("ok", "warning", "wrong")
    worst: dict[str, str] = {}
    for one in found["findings"]:
        before = worst.get(one["check"], "ok")
        worst[one["check"]] = max(before, one["verdict"], key=order.index)
        if one["verdict"] != "ok":
            assert one["advice"] or one["check"] == "store", one
    return worst


# --- validate ----------------------------------------------------------------------------------


def test_the_invariants_of_a_good_store_hold(shop):
    assert shop.run("validate").stdout == "every invariant holds\n"
    assert shop.json("validate") == {"valid": True, "problems": []}


def test_an_invariant_that_does_not_hold_is_exit_1(closed_shop, monkeypatch):
    monkeypatch.setattr(
        "holdfast.engines.journal.state.state.JournalState.problems",
        lambda _state: ["job 'a' is lost"],
    )
    assert closed_shop.run("validate", code=1).stdout == "wrong: job 'a' is lost\n"
    assert closed_shop.json("validate", code=1)["problems"] == ["job 'a' is lost"]
    assert verdicts(closed_shop.json("doctor", code=1))["invariants"] == "wrong"


# --- doctor ------------------------------------------------------------------------------------


def test_a_store_that_is_well_is_exit_0(shop):
    found = shop.json("doctor")
    worst = verdicts(found)
    assert found["well"]
    assert set(worst.values()) <= {"ok", "warning"}
    assert worst["daemon"] == ("ok" if shop.owned else "warning")
    assert worst["held keys"] == "warning"
    shop.run("doctor", "--strict", code=1)
    text = shop.run("doctor").stdout
    assert "held keys: 1 job held behind a dead job" in text
    assert "→ " in text
    assert text.splitlines()[-1].startswith("0 wrong, ")


def test_nothing_at_all_is_nothing_wrong(hold, here):
    found = json.loads(hold("doctor", "--json").stdout)
    assert verdicts(found)["store"] == "ok"
    assert list(here.iterdir()) == []


def test_settings_that_are_wrong_are_what_is_wrong(hold, monkeypatch):
    monkeypatch.setenv("HOLDFAST_WORKER_COUNT", "many")
    found = hold("doctor", "--json")
    assert found.exit_code == 1
    (finding,) = json.loads(found.stdout)["findings"]
    assert (finding["check"], finding["verdict"]) == ("settings", "wrong")
    assert "HOLDFAST_WORKER_COUNT" in finding["said"]


def test_a_task_that_cannot_reach_its_timeout_is_wrong(hold, here, monkeypatch):
    (here / "app.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast()\n"
        "@app.task(timeout='20m')\ndef slow() -> None: ...\n"
    )
    assert "1 task of app.py: each can reach its timeout" in hold("doctor", "app.py").stdout
    monkeypatch.setenv("HOLDFAST_MAX_PROCESSING_SECONDS", "10m")
    result = hold("doctor", "app.py")
    assert result.exit_code == 1
    assert (
        "timeout=20m of task 'slow' is longer than max_processing_seconds, which is 10m "
        "(environment HOLDFAST_MAX_PROCESSING_SECONDS)"
    ) in result.stdout
    ran = hold("run", "app.py", "--run-seconds", "1s")
    assert ran.exit_code == 2
    assert "timeout=20m of task 'slow' is longer than" in ran.stderr
    assert not (here / "data").exists()


def test_a_place_that_cannot_be_used_is_wrong(hold, here):
    (here / "file").write_text("")
    result = hold("--store", "file", "doctor")
    assert result.exit_code == 1
    assert "file is not a directory" in result.stdout


@pytest.mark.parametrize("name", ["", "log", "read-models/t_1.sqlite", "LOCK"])
def test_what_others_can_write_or_a_link_leads_to_is_wrong_and_changed_by_nothing(hold, here, name):
    assert hold("enqueue", stdin="[{}]").exit_code == 0
    path = here / "data" / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.is_dir():
        path.chmod(0o777)
    else:
        path.unlink(missing_ok=True)
        path.symlink_to("/etc/passwd")
    found = hold("doctor")
    assert found.exit_code == 1
    assert f"wrong    ownership: {path} belongs to " in found.stdout
    assert "`chmod go-w " in found.stdout or f"`rm {path}`" in found.stdout
    if path.is_dir():
        assert path.stat().st_mode & 0o777 == 0o777, "doctor changes nothing"


def test_a_store_that_others_can_take_away_is_warned_of(hold, here):
    (here / "shared").mkdir()
    (here / "shared").chmod(0o777)
    assert hold("--store", "shared/data", "enqueue", stdin="[{}]").exit_code == 0
    found = hold("--store", "shared/data", "doctor")
    assert found.exit_code == 0
    assert f"`chmod +t {here}/shared`" in found.stdout


def test_damage_is_wrong_and_says_where_to_go_on(closed_shop):
    log = closed_shop.path / "log"
    first = min(log.iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:200] + b"\xff" * 50 + data[250:])
    found = closed_shop.json("doctor", code=1)
    (damage,) = [one for one in found["findings"] if one["verdict"] == "wrong"]
    assert "is damaged at byte" in damage["said"]
    assert "journal verify" in damage["advice"]


async def test_an_owner_that_does_not_answer_is_wrong(closed_shop):
    engine = await JournalEngine.open(closed_shop.path)
    found = await asyncio.to_thread(closed_shop.json, "doctor", code=1)
    await engine.close()
    said = next(one["said"] for one in found["findings"] if one["check"] == "daemon")
    assert f"process {os.getpid()} owns the store and does not listen" in said


def test_a_surge_of_dead_letters_is_wrong(closed_shop, monkeypatch):
    monkeypatch.setattr(doctor_checks, "SURGE_MIN", 6)
    found = closed_shop.json("doctor", code=1)
    said = next(one["said"] for one in found["findings"] if one["check"] == "dead letters")
    assert said == "6 in the last hour, mostly upstream_5xx in mail"


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("MIN_FREE_BYTES", 1 << 62, "disk"),
        ("MIN_FREE_SHARE", 1.1, "disk"),
        ("MAX_LOG_BYTES", -1, "journal size"),
        ("SKEW_SECONDS", -1e9, "clock"),
    ],
)
def test_each_limit_of_the_place_is_looked_at(closed_shop, monkeypatch, name, value, check):
    monkeypatch.setattr(doctor_checks, name, value)
    result = closed_shop.run("doctor", "--strict", "--json", code=1)
    assert verdicts(json.loads(result.stdout))[check] in ("warning", "wrong")


def test_what_waits_for_nothing_good_is_said(shop, monkeypatch):
    shop.run("queues", "pause", "mail", *WHY)
    settings = Settings(store=str(shop.path))
    strange = [NewJob(task="strange", queue="mail")]
    store_access.write_store(settings, lambda operations: operations.engine.enqueue(strange))
    monkeypatch.setenv("HOLDFAST_QUEUES", "mail")
    monkeypatch.setenv("HOLDFAST_SYNC", "off")
    monkeypatch.setattr(doctor_checks, "SLOW_RECOVERY_SECONDS", -1.0)
    result = shop.run("doctor", code=1 if shop.owned else 0)
    assert "mail is paused with 2 jobs pending" in result.stdout
    unserved = "no live daemon serves it" if shop.owned else "these settings do not serve it"
    assert f"slow has 1 job pending, and {unserved}" in result.stdout
    assert "sync is off" in result.stdout
    if shop.owned:
        assert "no live daemon knows the task of 1 job of 'strange'" in result.stdout
        assert "warning  recovery" in result.stdout


def test_work_that_is_stuck_is_said(closed_shop, monkeypatch):
    monkeypatch.setattr(f"{doctor_checks.__name__}.time", SimpleNamespace(time=lambda: 4e9))
    assert "1 job held past the lease, the first is flying" in closed_shop.run("doctor").stdout


# --- top ---------------------------------------------------------------------------------------


def test_top_without_a_terminal_looks_once(shop):
    text = shop.run("top").stdout
    assert text.splitlines()[0] == ("slots 0/8" if shop.owned else "no daemon is running")
    assert "mail" in text
    assert "upstream_5xx   transient" in text
    found = shop.json("top", "--once")
    assert found["reasons"][0]["count"] == 4
    assert next(one for one in found["queues"] if one["queue"] == "slow")["oldest_pending_at"]
    assert invoke("top", "--interval", "soon").exit_code == 2


def test_top_streams_rates_as_json(shop, monkeypatch):
    looks: list[int] = []

    def pause(_seconds: float) -> None:
        looks.append(1)
        if len(looks) == 2:
            raise KeyboardInterrupt

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pause)
    monkeypatch.setattr("holdfast.cli.commands.top.time", clock)
    first, second = map(json.loads, shop.run("top", "--json").stdout.splitlines())
    assert first["rates_per_second"] == {}
    expected = {"enqueued", "completed", "retried", "dead"} if shop.owned else set()
    assert set(second["rates_per_second"]) == expected


def test_the_screen_shows_the_same(closed_shop, monkeypatch):
    import io  # noqa: PLC0415

    from rich.console import Console  # noqa: PLC0415

    from holdfast.cli.commands import top as looking  # noqa: PLC0415
    from holdfast.cli.top_screen import live_screen  # noqa: PLC0415

    settings = Settings(store=str(closed_shop.path))
    out = io.StringIO()
    found = looking._sample(settings, None)
    Console(file=out, width=120, force_terminal=True).print(live_screen(settings, found))
    for word in ("no daemon is running", "mail", "upstream_5xx"):
        assert word in out.getvalue()


# --- bench and completion ----------------------------------------------------------------------


def test_bench_measures_and_leaves_nothing(hold, here):
    result = hold("bench", "--jobs", 100, "--directory", here, "--sync", "off", "--json")
    found = json.loads(result.stdout)
    assert found["jobs"] == 100
    assert all(
        found[name] > 0
        for name in (
            "fdatasyncs_per_second",
            "enqueued_one_by_one_per_second",
            "enqueued_together_per_second",
            "processed_per_second",
            "latency_ms_p50",
            "latency_ms_p99",
        )
    )
    assert list(here.iterdir()) == []
    assert "enqueue, one caller" in hold("bench", "--jobs", 100, "--sync", "off").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_loads_in_its_shell(hold, here, shell):
    script = hold("completion", shell).stdout
    assert "_HOLDFAST_COMPLETE" in script
    path = shutil.which(shell)
    if path is None:
        return  # the script was made; only its shell can say more
    (here / "completion").write_text(script)
    command = f"source {here / 'completion'}"
    if shell == "zsh":
        command = f"autoload -Uz compinit; compinit -u; {command}"
    subprocess.run([path, "-c", command], check=True, timeout=30, capture_output=True)


def test_what_is_completed_are_the_commands(hold):
    result = invoke("completion", "bash")
    assert result.exit_code == 0
    environ = {
        **os.environ,
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast qu",
        "COMP_CWORD": "1",
    }
    from pathlib import Path  # noqa: PLC0415
    from sys import executable  # noqa: PLC0415

    found = subprocess.run(
        [str(Path(executable).parent / "holdfast")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert found.stdout == "plain,queues\n"
