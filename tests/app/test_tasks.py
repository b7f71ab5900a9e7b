"""A task as its users hold it: called, and enqueued with options. Nothing runs it here."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click
import pytest

from holdfast import (
    DuplicateId,
    Holdfast,
    InvalidInput,
    JobHandle,
    JobNotFound,
    ResultTimeout,
    Retry,
    Task,
    current,
)
from holdfast.cli.main import main as cli
from holdfast.model.errors import PayloadInvalid
from holdfast.model.job import Job


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[Holdfast]:
    monkeypatch.chdir(tmp_path)
    made = Holdfast("memory:")
    yield made
    made.close_sync()


def job_of(handle: JobHandle) -> Job:
    return asyncio.run(handle.get())


def test_a_call_is_a_call(app: Holdfast):
    @app.task
    def add(left: int, right: int = 2) -> int:
        """Add up."""
        return left + right

    @app.task(queue="mail")
    async def send(to: str) -> str:
        with pytest.raises(LookupError):
            current()
        return f"sent to {to}"

    assert add(1) == 3
    anything: Any = add
    assert anything("a", right="b") == "ab"  # nothing is checked or changed in a plain call
    assert asyncio.run(send("ann")) == "sent to ann"
    assert (add.name, add.__name__, add.__doc__, repr(add)) == (
        "add",
        "add",
        "Add up.",
        "<task add>",
    )
    assert isinstance(send, Task)


def test_current_is_for_tasks_only():
    with pytest.raises(LookupError, match=r"no attempt runs here: holdfast\.current\(\)"):
        current()


def test_what_a_task_declares_is_in_its_jobs(app: Holdfast):
    @app.task(
        name="mail.send",
        queue="mail",
        priority=7,
        retry=Retry(max_attempts=9),
        estimated="2m",
        max_processing="1h",
    )
    def send(to: UUID) -> None: ...

    job = job_of(send.enqueue_sync(UUID(int=5)))
    assert (job.task, job.queue, job.priority, job.max_attempts) == ("mail.send", "mail", 7, 9)
    assert (job.estimated_seconds, job.max_processing_seconds) == (120, 3_600)
    assert job.arguments() == {"to": "00000000-0000-0000-0000-000000000005"}
    assert job.id
    assert job.state == "pending"


@pytest.mark.parametrize("field", ["timeout", "estimated"])
def test_a_task_that_could_not_reach_its_own_time_is_refused_where_it_is_declared(app, field):
    def slow() -> None: ...

    with pytest.raises(InvalidInput) as refused:
        app.task(max_processing="10m", **{field: "20m"})(slow)
    assert refused.value.field == field
    assert f"{field}=20m of task 'slow' is longer than max_processing=10m" in str(refused.value)
    assert "slow" not in app.registry.tasks


def test_what_a_task_does_not_declare_is_the_setting(app: Holdfast, monkeypatch):
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "11")

    @app.task
    def work() -> None: ...

    job = job_of(work.enqueue_sync())
    assert (job.queue, job.priority, job.max_attempts) == ("default", 0, 11)
    assert (job.estimated_seconds, job.max_processing_seconds) == (None, None)


def test_a_task_enqueued_by_its_name_is_the_same_job(app: Holdfast):
    @app.task(
        queue="mail", priority=7, retry=Retry(max_attempts=9), estimated=60, max_processing=90
    )
    def send(to: str) -> None: ...

    async def both() -> list[Job]:
        with pytest.raises(PayloadInvalid, match="send: Object missing required field `to`"):
            await app.enqueue("send", {})
        handles = [await send.enqueue("ann"), await app.enqueue("send", {"to": "ann"})]
        other = await app.enqueue("elsewhere", queue="q")
        assert (await other.get()).queue == "q"
        return [await handle.get() for handle in handles]

    one, other = asyncio.run(both())
    for field in ("task", "queue", "priority", "max_attempts", "payload", "estimated_seconds"):
        assert getattr(one, field) == getattr(other, field), field
    assert one.max_processing_seconds == other.max_processing_seconds == 90


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"id": "mine"}, {"id": "mine"}),
    ({"queue": "q"}, {"queue": "q"}),
    ({"priority": -5}, {"priority": -5}),
    ({"priority": 0}, {"priority": 0}),
    ({"unique": "u"}, {"unique": "u"}),
    ({"max_attempts": 1}, {"max_attempts": 1}),
    ({"estimated": "1h"}, {"estimated_seconds": 3_600}),
    ({"tenant": "acme"}, {"tenant": "acme"}),
    ({"scope": "library:1/book:2"}, {"scope": "library:1/book:2"}),
]


@pytest.mark.parametrize(("options", "fields"), OPTIONS, ids=str)
def test_options_go_over_what_the_task_declares(app: Holdfast, options, fields):
    @app.task(queue="mail", priority=7, retry=Retry(max_attempts=9), estimated=60)
    def work() -> None: ...

    changed = work.options(**options)
    job = job_of(changed.enqueue_sync())
    assert {name: getattr(job, name) for name in fields} == fields
    plain = job_of(work.enqueue_sync())  # the task itself is as it was
    assert (plain.queue, plain.priority, plain.max_attempts, plain.tenant) == (
        "mail",
        7,
        9,
        "default",
    )


def test_options_add_up(app: Holdfast):
    @app.task
    def work() -> None: ...

    job = job_of(work.options(priority=1, queue="a").options(queue="b", unique="u").enqueue_sync())
    assert (job.priority, job.queue, job.unique) == (1, "b", "u")


@pytest.mark.parametrize("delay", ["5m", 300, 300.0, timedelta(minutes=5), "4m60s"], ids=repr)
def test_a_delay_is_written_in_many_ways(app: Holdfast, delay):
    @app.task
    def work() -> None: ...

    job = job_of(work.options(delay=delay, expires="1h").enqueue_sync())
    assert job.run_at_us - job.created_at_us == 300_000_000
    assert (job.expires_at_us or 0) - job.created_at_us == 3_600_000_000


def test_a_moment_to_run_at_needs_a_time_zone(app: Holdfast):
    @app.task
    def work() -> None: ...

    moment = datetime(2100, 1, 1, tzinfo=UTC)
    assert job_of(work.options(run_at=moment).enqueue_sync()).run_at_us == (
        moment.timestamp() * 1_000_000
    )
    with pytest.raises(InvalidInput, match="run_at: 2100-01-01 00:00:00 has no time zone"):
        work.options(run_at=datetime(2100, 1, 1))  # noqa: DTZ001 - that is the mistake


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"expires": True}, "expires"),
        ({"connection": "conn"}, "connection"),
        ({"priority": 99_999}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"queue": ""}, "queue"),
        ({"id": "a\nb"}, "id"),
        ({"estimated": "2h"}, "estimated_seconds"),
        ({"delay": 1, "run_at": datetime(2100, 1, 1, tzinfo=UTC)}, "delay_seconds"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_and_named(app: Holdfast, options, field):
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidInput) as refused:
        work.options(**options).enqueue_sync()
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": "x"}, "timeout"),
        ({"estimated": "2h"}, "estimated"),
        ({"max_processing": 0}, "max_processing"),
        ({"run_in": "fiber"}, "run_in"),
        ({"name": "a\nb"}, "task"),
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused_and_named(app: Holdfast, declared, field):
    with pytest.raises(InvalidInput) as refused:
        app.task(**declared)(lambda: None)
    assert refused.value.field == field


def test_cron_goes_above_the_task(app: Holdfast):
    with pytest.raises(InvalidInput, match=r"put @app\.cron\(\.\.\.\) above @app\.task"):
        app.cron("* * * * *")(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="expression"):
        app.cron("every day")(app.task(name="a")(lambda: None))
    with pytest.raises(InvalidInput, match="arguments"):
        app.cron("* * * * *", arguments={"odd": 1})(app.task(name="b")(lambda: None))


# --- many at once ------------------------------------------------------------------------------


def test_many_calls_are_one_commit_in_their_order(app: Holdfast):
    @app.task
    def add(left: int, right: int = 2) -> None: ...

    handles = add.enqueue_many_sync([(1,), (2, 3), {"left": 4, "right": 5}, [6]])
    assert [job_of(handle).arguments() for handle in handles] == [
        {"left": 1},
        {"left": 2, "right": 3},
        {"left": 4, "right": 5},
        {"left": 6},
    ]
    assert len({handle.id for handle in handles}) == 4
    assert add.enqueue_many_sync([]) == []
    assert add.enqueue_many_sync((number,) for number in range(3))[2].id


@pytest.mark.parametrize("wrong", [("x",), {"odd": 1}, (1, 2, 3), "text", b"bytes", 7])
def test_one_wrong_call_among_many_takes_none(app: Holdfast, wrong):
    @app.task
    def add(left: int, right: int = 2) -> None: ...

    with pytest.raises(InvalidInput):
        add.enqueue_many_sync([(1,), wrong, (2,)])
    counts = app._binding.call_sync(lambda engine: engine.counts())
    assert counts == {}


def test_a_string_of_arguments_is_most_likely_a_slip(app: Holdfast):
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(InvalidInput, match=r"'ann' is not a tuple of arguments: write \('ann',\)"):
        send.enqueue_many_sync(["ann"])  # type: ignore[list-item]


def test_a_duplicate_id_is_refused_and_nothing_is_enqueued(app: Holdfast):
    @app.task
    def work(number: int) -> None: ...

    first = work.options(id="mine").enqueue_sync(1)
    with pytest.raises(DuplicateId, match="'mine'"):
        work.options(id="mine").enqueue_sync(2)
    assert job_of(first).arguments() == {"number": 1}


def test_what_the_error_for_a_duplicate_recommends_is_there(app: Holdfast):
    @app.task
    def work(number: int) -> None: ...

    mine = work.options(id="mine")
    mine.enqueue_sync(1)
    with pytest.raises(DuplicateId) as refused:
        mine.enqueue_sync(2)
    assert 'on_duplicate="skip", --skip-duplicates' in str(refused.value)
    skipping = mine.options(on_duplicate="skip")
    command = cli.get_command(click.Context(cli), "enqueue")
    assert command is not None
    assert "--skip-duplicates" in [name for option in command.params for name in option.opts]

    async def ask() -> list[JobHandle]:
        with pytest.raises(DuplicateId):
            await app.enqueue("work", {"number": 3}, id="mine")
        return [
            await skipping.enqueue(2),
            *await skipping.enqueue_many([(2,)]),
            await app.enqueue("work", {"number": 3}, id="mine", on_duplicate="skip"),
            *await app.enqueue_all([skipping.call(4)]),
            *await app.enqueue_all([mine.call(4)], on_duplicate="skip"),
        ]

    handles = [*asyncio.run(ask()), skipping.enqueue_sync(5), *skipping.enqueue_many_sync([(6,)])]
    handles += app.enqueue_all_sync([mine.call(7)], on_duplicate="skip")
    assert {(handle.id, handle.existed) for handle in handles} == {("mine", True)}
    assert job_of(handles[0]).arguments() == {"number": 1}
    with pytest.raises(InvalidInput, match="on_duplicate: 'ignore' is not refuse or skip"):
        mine.options(on_duplicate="ignore").enqueue_sync(8)  # type: ignore[arg-type]


def test_a_job_enqueued_by_name_is_checked_like_any_other(app: Holdfast):
    @app.task
    def work(at: datetime, data: bytes = b"", anything: Any = None) -> None: ...

    async def ask() -> Job:
        for task in ("work", "elsewhere"):
            with pytest.raises(PayloadInvalid, match=r"anything\['a'\] is bytes, which would come"):
                await app.enqueue(task, {"at": "2027-01-01T00:00:00Z", "anything": {"a": b"x"}})
        with pytest.raises(PayloadInvalid, match="elsewhere: at is a datetime, which would"):
            await app.enqueue("elsewhere", {"at": datetime.now(UTC)})
        with pytest.raises(PayloadInvalid, match="elsewhere: its field 7 is not named by text"):
            await app.enqueue("elsewhere", {7: 1})  # type: ignore[dict-item]
        with pytest.raises(PayloadInvalid, match="work: 7 names no argument"):
            await app.enqueue("work", {7: 1})  # type: ignore[dict-item]
        moment = datetime(2027, 1, 1, tzinfo=UTC)
        return await (await app.enqueue("work", {"at": moment, "data": b"\xff"})).get()

    assert asyncio.run(ask()).arguments() == {"at": "2027-01-01T00:00:00Z", "data": "/w=="}


def test_a_unique_key_returns_the_first_and_says_that_it_existed(app: Holdfast):
    @app.task
    def work(number: int) -> None: ...

    unique = work.options(unique="report:7")
    first = unique.enqueue_sync(1)
    second = unique.enqueue_sync(2)
    assert second.id == first.id
    assert (first.existed, second.existed) == (False, True)
    assert job_of(second).arguments() == {"number": 1}
    elsewhere = unique.options(queue="other").enqueue_sync(3)
    assert elsewhere.id != first.id


# --- handles -----------------------------------------------------------------------------------


def test_a_job_that_is_not_there_is_said_when_it_is_asked_for(app: Holdfast):
    handle = app.job("nobody")
    assert repr(handle) == "<job nobody>"
    with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
        job_of(handle)
    with pytest.raises(JobNotFound):
        handle.result_sync(timeout=1)


def test_a_handle_asks_in_its_own_tenant(app: Holdfast):
    @app.task
    def work() -> None: ...

    handle = work.options(tenant="acme").enqueue_sync()
    assert job_of(handle).tenant == "acme"
    assert job_of(app.job(handle.id, "acme")).id == handle.id
    with pytest.raises(JobNotFound):
        job_of(app.job(handle.id))


def test_a_result_that_does_not_come_in_time_is_an_error_and_the_job_goes_on(app: Holdfast):
    @app.task
    def work() -> None: ...

    handle = work.enqueue_sync()
    with pytest.raises(ResultTimeout, match=r"is still pending after 0\.05 s; it continues"):
        handle.result_sync(timeout="50ms")
    with pytest.raises(ResultTimeout):
        asyncio.run(handle.result(timeout=0))
    assert job_of(handle).state == "pending"
    with pytest.raises(InvalidInput, match="timeout"):
        handle.result_sync(timeout=-1)


# --- settings ----------------------------------------------------------------------------------


def test_the_store_comes_from_the_environment_the_file_or_the_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Holdfast().settings.store == "./data"
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "from-env"))
    assert Holdfast().settings.store == str(tmp_path / "from-env")
    assert Holdfast(tmp_path / "said").settings.store == str(tmp_path / "said")
    (tmp_path / "mine.toml").write_text('worker_count = 3\nstore = "elsewhere"\n')
    made = Holdfast(config=str(tmp_path / "mine.toml"))
    assert (made.settings.worker_count, made.settings.store) == (3, str(tmp_path / "from-env"))


def test_a_wrong_setting_is_said_when_it_is_first_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_WORKER_COUNT", "many")
    made = Holdfast("memory:")

    @made.task
    def work() -> None: ...

    with pytest.raises(InvalidInput, match=r"'many'.*environment HOLDFAST_WORKER_COUNT"):
        work.enqueue_sync()
