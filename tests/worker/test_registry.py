"""What an application declares, the tasks that come with Holdfast, and finding one by name."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import InvalidInput, UnknownTask
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.worker import builtin_tasks
from holdfast.worker.app_loader import load_registry
from holdfast.worker.attempt import Attempt
from holdfast.worker.builtin_tasks import BY_TYPE, SIMULATE, add_builtin, by_type
from holdfast.worker.registry import Execution, Registry, execution_of
from holdfast.worker.schedules import Schedule

from .world import World, spec_of


def plain() -> None: ...


async def on_loop() -> None: ...


class Called:
    async def __call__(self) -> None: ...


# --- tasks ------------------------------------------------------------------------------------


def test_two_functions_of_one_name_are_refused_and_both_are_named():
    registry = Registry()
    registry.add_task(spec_of(plain, name="mail"))
    with pytest.raises(InvalidInput, match=r"plain.*on_loop.*another name="):
        registry.add_task(spec_of(on_loop, name="mail"))
    assert registry.task("mail").function is plain


def test_the_same_function_read_a_second_time_takes_its_own_place():
    # A main script that is imported again by its name, or a reloaded module.
    source = "def mail(): ...\n"
    registry = Registry()
    scopes: list[dict[str, Any]] = [{}, {}]
    for scope in scopes:
        exec(compile(source, "/somewhere/jobs.py", "exec"), scope)  # noqa: S102 - a module
        registry.add_task(spec_of(scope["mail"]))
    assert registry.task("mail").function is scopes[1]["mail"]


@pytest.mark.parametrize("name", ["", "x" * 256, "two\nlines"])
def test_a_task_needs_a_printable_name(name):
    with pytest.raises(InvalidInput, match="task"):
        Registry().add_task(spec_of(plain, name=name))


def test_an_unknown_task_is_an_error_that_lists_the_known_ones():
    registry = Registry()
    registry.add_task(spec_of(plain, name="b"))
    registry.add_task(spec_of(plain, name="a"))
    with pytest.raises(UnknownTask, match="no task is named 'c'; known: a, b"):
        registry.task("c")


def test_queues_are_those_of_tasks_and_schedules_and_the_default_one():
    registry = Registry()
    registry.add_task(spec_of(plain, queue="mail"))
    registry.add_schedule(Schedule(name="s", expression="* * * * *", task="t", queue="night"))
    assert registry.queues == [DEFAULT_QUEUE, "mail", "night"]


def test_two_schedules_of_one_name_are_refused():
    registry = Registry()
    registry.add_schedule(Schedule(name="s", expression="* * * * *", task="t"))
    with pytest.raises(InvalidInput, match="two schedules are named 's'"):
        registry.add_schedule(Schedule(name="s", expression="0 * * * *", task="t"))


@pytest.mark.parametrize(
    ("function", "asked", "expected"),
    [
        (on_loop, None, Execution.LOOP),
        (plain, None, Execution.THREAD),
        (functools.partial(on_loop), None, Execution.LOOP),
        (functools.partial(functools.partial(plain)), None, Execution.THREAD),
        (Called(), None, Execution.LOOP),
        (on_loop, "async", Execution.LOOP),
        (plain, "thread", Execution.THREAD),
        (plain, "process", Execution.PROCESS),
        (on_loop, "process", Execution.PROCESS),
    ],
)
def test_coroutines_run_on_the_loop_and_the_rest_in_threads_unless_asked(function, asked, expected):
    assert execution_of(function, asked) is expected


@pytest.mark.parametrize(
    ("function", "asked", "said"),
    [
        (on_loop, "thread", "a coroutine function runs on the loop or in a process"),
        (plain, "async", "a plain function would block the loop"),
        (plain, "fiber", "'fiber' is not one of async, thread, process"),
        (plain, "", "'' is not one of"),
    ],
)
def test_a_place_where_the_function_cannot_run_is_refused(function, asked, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        execution_of(function, asked)
    assert refused.value.field == "run_in"


# --- middlewares -------------------------------------------------------------------------------


def middleware(name: str, trace: list[str]) -> Any:
    @asynccontextmanager
    async def around(attempt: Attempt) -> AsyncIterator[None]:
        trace.append(f"+{name} {attempt.id}")
        try:
            yield
        except ZeroDivisionError:
            trace.append(f"!{name}")
            raise
        finally:
            trace.append(f"-{name}")

    return around


def test_middlewares_nest_with_the_first_one_outermost():
    world = World()
    trace: list[str] = []

    @world.task()
    async def work() -> None:
        trace.append("work")

    world.registry.middlewares += [middleware(name, trace) for name in "abc"]

    async def scenario(world: World) -> None:
        await world.enqueue("work", id="j")
        world.start()
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)
    assert trace == ["+a j", "+b j", "+c j", "work", "-c", "-b", "-a"]


def test_what_a_task_raises_passes_through_every_middleware():
    world = World()
    trace: list[str] = []

    @world.task()
    async def work() -> None:
        raise ZeroDivisionError

    world.registry.middlewares += [middleware(name, trace) for name in "ab"]

    async def scenario(world: World) -> None:
        await world.enqueue("work", id="j", max_attempts=1)
        world.start()
        await world.until_state(dead=1)
        await world.stop()

    world.run(scenario)
    assert trace == ["+a j", "+b j", "!b", "-b", "!a", "-a"]


def test_a_middleware_that_fails_is_the_attempts_failure_and_the_task_does_not_run():
    world = World()

    @world.task()
    async def work() -> None:
        world.seen.append("ran")

    @asynccontextmanager
    async def around(_attempt: Attempt) -> AsyncIterator[None]:
        raise ConnectionRefusedError("no pool")
        yield

    world.registry.middlewares.append(around)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", max_attempts=1)
        world.start()
        await world.until_state(dead=1)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert failure.error_reason == "connection"
        assert "no pool" in failure.message
        await world.stop()

    world.run(scenario)
    assert world.seen == []


# --- the tasks that come with Holdfast --------------------------------------------------------


def test_builtin_tasks_are_added_and_never_replace_an_applications_own():
    registry = Registry()
    registry.add_task(spec_of(plain, name=SIMULATE))
    assert add_builtin(registry) is registry
    assert registry.task(SIMULATE).function is plain
    assert set(registry.tasks) == {SIMULATE, BY_TYPE}
    assert registry.default_task == SIMULATE
    add_builtin(registry)  # a second time changes nothing


def test_a_default_task_that_is_not_there_is_refused():
    with pytest.raises(UnknownTask, match="no task is named 'nowhere'"):
        add_builtin(Registry(), "nowhere")


@pytest.mark.parametrize(
    ("payload", "task", "passed_on"),
    [
        (b'{"type":"mail","to":"ann"}', "mail", b'{"to":"ann"}'),
        (b'{"type":"typed","to":"ann"}', "typed", b'{"type":"typed","to":"ann"}'),
        (b'{"type":"unknown","to":"ann"}', "rest", b'{"type":"unknown","to":"ann"}'),
        (b'{"to":"ann"}', "rest", b'{"to":"ann"}'),
        (b'{"type":7}', "rest", b'{"type":7}'),
        (b'{"type":null}', "rest", b'{"type":null}'),
        (b'{"type":["mail"]}', "rest", b'{"type":["mail"]}'),
        (b'{"type":"holdfast.by_type"}', "rest", b'{"type":"holdfast.by_type"}'),
    ],
)
def test_a_job_without_a_task_goes_by_its_payloads_type_and_else_to_the_default(
    payload, task, passed_on
):
    def mail(to: str) -> None: ...
    def typed(type: str, to: str) -> None: ...  # noqa: A002 - a field of that name
    def rest(**fields: object) -> None: ...

    registry = Registry()
    for function in (mail, typed, rest):
        registry.add_task(spec_of(function))
    add_builtin(registry, "rest")
    found, fields = by_type(registry, payload)
    assert (found.name, fields) == (task, passed_on)
    found.signature.check(fields)


def test_a_job_without_a_task_is_run_by_the_task_that_its_type_names():
    world = World()

    @world.task(timeout_seconds=100.0)
    async def mail(to: str) -> str:
        await asyncio.sleep(50)
        return f"sent to {to}"

    add_builtin(world.registry)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue(BY_TYPE, payload={"type": "mail", "to": "ann"})
        worker = world.start()
        await asyncio.sleep(1)
        assert [run.task for run in worker.running()] == ["mail"]
        await world.until_state(completed=1)
        assert (await world.job(job)).result == b'"sent to ann"'
        await world.stop()

    world.run(scenario)


def test_simulated_work_takes_a_while_and_fails_in_one_run_of_ten(monkeypatch):
    asked: list[tuple[float, float]] = []
    draws = iter([0.05, 0.5, 0.99, 0.0])

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.3

    monkeypatch.setattr("random.uniform", uniform)
    monkeypatch.setattr("random.random", lambda: next(draws))
    world = World()

    async def scenario(_world: World) -> float:
        with pytest.raises(builtin_tasks.SimulatedFailure, match="one run of ten"):
            await builtin_tasks.simulate()
        await builtin_tasks.simulate(anything=[1])
        with pytest.raises(builtin_tasks.SimulatedFailure):
            await builtin_tasks.simulate(seconds=2, fail_rate=1)
        await builtin_tasks.simulate(seconds=0.5, fail_rate=0)
        return asyncio.get_running_loop().time()

    assert world.run(scenario) == pytest.approx(0.3 + 0.3 + 2 + 0.5)
    assert asked == [(0.1, 0.5)] * 2


# --- finding an application -------------------------------------------------------------------

APP = """
from holdfast import Holdfast
{name} = Holdfast({store!r})
other = 7

@{name}.task
def work() -> None: ...
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write_app(path: Path, name: str = "app") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(APP.format(name=name, store=str(path.parent / "data")))


@pytest.mark.parametrize(
    ("file", "name", "reference", "found_as"),
    [
        ("shop_a.py", "app", "shop_a:app", "shop_a:app"),
        ("shop_b.py", "app", "shop_b", "shop_b:app"),
        ("shop_c.py", "holdfast", "shop_c", "shop_c:holdfast"),
        ("shop_d.py", "application", "shop_d", "shop_d:application"),
        ("shop_e.py", "jobs", "shop_e:jobs", "shop_e:jobs"),
        ("shop_f.py", "app", "shop_f.py", "shop_f.py:app"),
        ("shop_g.py", "jobs", "./shop_g.py:jobs", "./shop_g.py:jobs"),
        ("pack_a/shop.py", "app", "pack_a.shop:app", "pack_a.shop:app"),
        ("pack_b/shop.py", "app", "pack_b/shop.py", "pack_b/shop.py:app"),
    ],
)
def test_an_application_is_found_by_module_or_file(here, file, name, reference, found_as):
    write_app(here / file, name)
    registry = load_registry(reference)
    assert "work" in registry.tasks
    assert registry.reference == found_as


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere:app", "no module is named 'nowhere' here"),
        ("pack.nowhere", "no module is named 'pack.nowhere' here"),
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("shop:nothing", "'shop:nothing' has no such attribute, not a Holdfast application"),
        ("shop:other", "'shop:other' is a int, not a Holdfast application"),
        ("bare", "'bare' has no 'app': write bare:NAME"),
        ("", "''"),
        (":app", "''"),
        ("..shop", "'..shop'"),
        (".", "'.'"),
        ("shop\0", "shop"),
        ("a b:c", "'a b'"),
    ],
)
def test_a_wrong_reference_is_an_error_that_says_which_part_is_wrong(here, reference, said):
    write_app(here / "shop.py")
    (here / "bare.py").write_text("")
    (here / "pack").mkdir()
    with pytest.raises(InvalidInput) as refused:
        load_registry(reference)
    assert refused.value.field == "app"
    assert said in str(refused.value)


def test_a_module_that_an_application_cannot_import_is_named_itself(here):
    (here / "needy.py").write_text("import nowhere_at_all\n")
    with pytest.raises(InvalidInput, match=r"needy.*nowhere_at_all") as refused:
        load_registry("needy:app")
    assert "line 1" in str(refused.value)


@pytest.mark.parametrize("reference", ["broken:app", "broken.py:app"])
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ny = x / 0\n", r"ZeroDivisionError: division by zero.*line 2"),
        ("def f(:\n", r"SyntaxError.*line 1"),
        ("raise SystemExit(3)\n", r"SystemExit: 3"),
    ],
)
def test_an_application_that_fails_when_it_is_imported_says_why_and_where(
    here, reference, source, said
):
    (here / "broken.py").write_text(source)
    with pytest.raises(InvalidInput, match=said) as refused:
        load_registry(reference)
    assert refused.value.__cause__ is not None
