"""What ``import holdfast`` gives, what it costs, and what a type checker makes of it."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import holdfast

HEAVY = ("uvicorn", "rich", "prometheus_client", "yaml", "httptools", "structlog", "click")


def test_public_names_are_few_sorted_and_there():
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert len(holdfast.__all__) <= 25
    for name in holdfast.__all__:
        found = getattr(holdfast, name)
        assert found.__name__ == name
        assert found.__doc__, name


def test_dir_shows_the_public_names():
    assert dir(holdfast) == holdfast.__all__


def test_every_public_name_is_the_one_in_its_home():
    from holdfast import Holdfast, JobFailed, Retry, current  # noqa: PLC0415 - as users write it

    assert Holdfast is importlib.import_module("holdfast.app").Holdfast
    assert Retry is importlib.import_module("holdfast.model.signals").Retry
    assert current is importlib.import_module("holdfast.worker.attempt").current
    assert issubclass(JobFailed, holdfast.HoldfastError)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Nothing'"):
        holdfast.Nothing  # noqa: B018 - looking is the test
    with pytest.raises(ImportError):
        from holdfast import Nothing  # type: ignore[attr-defined]  # noqa: F401, PLC0415


def modules_after(code: str, directory: Path) -> set[str]:
    """Return the modules that a fresh interpreter has after this code."""
    script = f"{code}\nimport sys\nprint('MODULES', *sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    line = next(line for line in found.stdout.splitlines() if line.startswith("MODULES"))
    return set(line.split()[1:])


def test_import_holdfast_imports_nothing_but_itself(tmp_path):
    found = modules_after("import holdfast", tmp_path)
    assert not found & {*HEAVY, "asyncio", "msgspec", "holdfast.app"}


def test_an_application_is_declared_without_anything_heavy(tmp_path):
    code = """
from holdfast import Holdfast, Retry, Snooze, current
app = Holdfast("data")

@app.task(retry=Retry(max_attempts=2))
async def work(number: int) -> None: ...
"""
    assert not modules_after(code, tmp_path) & set(HEAVY)


def test_enqueueing_to_a_store_of_ones_own_needs_no_web_server(tmp_path):
    code = """
from holdfast import Holdfast
app = Holdfast("data", own=True)

@app.task
def work(number: int) -> None: ...

assert work.enqueue_sync(1).id
app.close_sync()
"""
    assert not modules_after(code, tmp_path) & {"uvicorn", "rich", "prometheus_client", "yaml"}


SNIPPET = """
from holdfast import Holdfast, JobHandle, Retry

app = Holdfast("data")


@app.task
def add(left: int, right: int = 2) -> int:
    return left + right


@app.task(queue="mail", timeout="30s", retry=Retry(max_attempts=8))
async def send(to: str, *, urgent: bool = False) -> None: ...


@app.cron("0 3 * * *")
@app.task
async def nightly() -> None: ...


async def right() -> None:
    number: int = add(1, 2)
    await send("ann", urgent=True)
    await nightly()
    handle: JobHandle = await add.enqueue(1, right=number)
    await send.options(delay="5m", unique="u", priority=5, expires="1h").enqueue("ann")
    await add.enqueue_many([(1,), (2, 3), {"left": 1}])
    print(handle.id, handle.existed, await handle.result(timeout=5))
    send.enqueue_sync("ann", urgent=True)
    await nightly.enqueue()


async def wrong() -> None:
    await add.enqueue("one")  # E
    await add.enqueue()  # E
    await add.enqueue(1, 2, 3)  # E
    await send.enqueue("ann", True)  # E
    await send.enqueue("ann", urgnt=True)  # E
    add.enqueue_sync(left=b"1")  # E
    await send.options(delay="5m").enqueue(7)  # E
    send.options(dealy="5m")  # E
    add("one")  # E
    text: str = add(1)  # E
    await nightly.enqueue(1)  # E


@app.task(run_in="fiber")  # E
def nowhere() -> None: ...
"""


def test_a_type_checker_sees_through_a_task(tmp_path):
    path = tmp_path / "snippet.py"
    path.write_text(SNIPPET)
    out, err, _code = api.run(
        [
            "--strict",
            "--config-file=",
            f"--cache-dir={tmp_path / 'cache'}",
            "--no-error-summary",
            "--hide-error-context",
            "--follow-imports=silent",
            str(path),
        ]
    )
    assert not err
    wrong = {int(line.split(":")[1]) for line in out.splitlines() if ": error:" in line}
    expected = {
        number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# E")
    }
    assert wrong == expected, out
