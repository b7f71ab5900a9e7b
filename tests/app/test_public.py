"""What ``import holdfast`` gives, what it costs, and what a type checker makes of it."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import holdfast
from holdfast.model import errors

HEAVY = ("rich", "prometheus_client", "yaml", "httptools", "structlog", "click")


def test_public_names_are_few_sorted_and_there():
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert len(holdfast.__all__) <= 40
    for name in holdfast.__all__:
        found = getattr(holdfast, name)
        assert found.__name__ == name
        assert found.__doc__, name


def test_dir_shows_the_public_names():
    assert dir(holdfast) == holdfast.__all__


def test_a_star_import_gives_the_public_names():
    found: dict[str, object] = {}
    exec("from holdfast import *", found)  # noqa: S102 - only a module may write it
    assert set(found) - {"__builtins__"} == set(holdfast.__all__)


def raised_by_users_calls() -> set[type[errors.HoldfastError]]:
    """Return the errors that the docstrings of the public methods name."""
    owners: list[type] = [holdfast.Holdfast, holdfast.Task, holdfast.JobHandle, holdfast.Call]
    texts = [inspect.getdoc(one) or "" for owner in owners for one in vars(owner).values()]
    named = set(re.findall(r"``(\w+)``", " ".join(texts)))
    return {kind for name in named if isinstance(kind := getattr(errors, name, None), type)}


def test_every_error_that_a_users_call_raises_is_public():
    named = raised_by_users_calls()
    assert {errors.DuplicateId, errors.NoResult, errors.StorageFull} <= named
    for kind in named:
        assert getattr(holdfast, kind.__name__) is kind
    for name in ("PayloadInvalid", "TooLarge", "UnknownDependency", "WrongLoop", "NoOwner"):
        assert issubclass(getattr(holdfast, name), holdfast.HoldfastError)


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
    assert not modules_after(code, tmp_path) & {"httptools", "rich", "prometheus_client", "yaml"}


SNIPPET = """
from holdfast import Holdfast, JobHandle, Retry

app = Holdfast("data")


@app.task
def add(left: int, right: int = 2) -> int:
    return left + right


@app.task(queue="mail", timeout="30s", retry=Retry(max_attempts=8))
async def send(to: str, *, urgent: bool = False) -> None: ...


@app.task
async def greet(name: str) -> str:
    return f"hello {name}"


@app.cron("0 3 * * *")
@app.task
async def nightly() -> None: ...


async def right() -> None:
    number: int = add(1, 2)
    await send("ann", urgent=True)
    await nightly()
    plain: JobHandle = await add.enqueue(1, right=number)
    handle: JobHandle[int] = await add.enqueue(1, right=number)
    total: int = await handle.result()
    words: JobHandle[str] = await greet.enqueue("ann")  # what the coroutine returns
    text: str = await words.result("5s")
    text = greet.enqueue_sync("ann").result_sync()
    any_value: object = await (await app.enqueue("add", {"left": 1})).result()
    any_value = app.job("x").result_sync()
    await send.options(delay="5m", unique="u", priority=5, expires="1h").enqueue("ann")
    await add.enqueue_many([(1,), (2, 3), {"left": 1}])
    numbers: list[JobHandle[int]] = await add.enqueue_many([add.call(1, right=3), (4,)])
    texts: list[JobHandle[str]] = greet.enqueue_many_sync(greet.call(name) for name in "ab")
    first = add.options(id="a", key="k").call(1)
    last = greet.options(depends_on=[first, handle, "id"], on_duplicate="skip").call("ann")
    await app.enqueue_all([first, last], on_duplicate="skip")
    same: list[JobHandle[int]] = app.enqueue_all_sync([first, add.call(2)])
    print(plain, total, text, any_value, numbers, texts, same)
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
    count: int = await (await greet.enqueue("ann")).result()  # E
    word: str = await (await add.enqueue(1)).result()  # E
    number: int = await app.job("x").result()  # E
    handle: JobHandle[str] = await add.enqueue(1)  # E
    await add.enqueue_many([add.call("one")])  # E
    await add.enqueue_many([add.call(1, 2, 3)])  # E
    await add.enqueue_many([greet.call("ann")])  # E
    await add.enqueue_many(["ab"])  # E
    await add.enqueue_many([7])  # E
    await app.enqueue_all([(1,)])  # E
    add.options(on_duplicate="ignore")  # E
    add.options(depends_on=[7])  # E


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
