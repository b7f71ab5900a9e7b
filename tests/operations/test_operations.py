"""What people do: jobs written in files, counts, and one job in full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.contract import Admission, Counts
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import outcome as outcomes
from holdfast.model.errors import (
    DuplicateId,
    InvalidInput,
    JobNotFound,
    PayloadInvalid,
    StorageFull,
    Unavailable,
    UnknownTask,
)
from holdfast.model.failure import Failure
from holdfast.model.fleet import (
    CommandAnswer,
    ProcessSlots,
    RunningAttempt,
    WorkerCommand,
    WorkerProcess,
)
from holdfast.model.job import Job
from holdfast.model.signals import Retry
from holdfast.operations.attribution import Author
from holdfast.operations.inputs import JobInput, read_inputs
from holdfast.operations.operations import Operations, created
from holdfast.operations.views import JobView, status_of
from holdfast.testing import VirtualClock
from holdfast.worker.builtin_tasks import BY_TYPE, SIMULATE, add_builtin
from holdfast.worker.registry import Registry
from tests.worker.world import spec_of

T = TypeVar("T")
WHO = Author("ann", "the server is back")


def mail(to: str) -> None: ...


def report(when: datetime, **rest: object) -> None: ...


def registry() -> Registry:
    found = Registry()
    found.add_task(
        spec_of(
            mail,
            queue="mail",
            priority=7,
            retry=Retry(max_attempts=9),
            estimated_seconds=60.0,
            max_processing_seconds=900.0,
        )
    )
    found.add_task(spec_of(report))
    return add_builtin(found)


class Desk:
    def __init__(self, declared: Registry | None = None) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.operations = Operations(self.engine, declared, default_max_attempts=4)

    async def take(self, text: bytes) -> list[Job]:
        receipts = await self.operations.enqueue(read_inputs(text))
        found = await self.engine.get([receipt.id for receipt in receipts])
        return [job for job in found if job is not None]


def run(scenario: Callable[[Desk], Coroutine[Any, Any, T]], declared: Registry | None) -> T:
    return asyncio.run(scenario(Desk(declared)))


def take(text: bytes, declared: Registry | None = None) -> list[Job]:
    return run(lambda desk: desk.take(text), declared)


# --- what may be in a file ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b'[{"id":"a"},{"id":"b"}]',
        b' [\n{"id":"a"},\n{"id":"b"}\n]\n',
        b'{"id":"a"}\n{"id":"b"}\n',
        b'{"id":"a"}\r\n\r\n{"id":"b"}',
        b'\n\n  {"id":"a"}\n\n\t{"id":"b"}  \n',
        b'\xef\xbb\xbf[{"id":"a"},{"id":"b"}]',
        b'\xef\xbb\xbf{"id":"a"}\n{"id":"b"}',
    ],
)
def test_a_file_is_an_array_or_an_object_per_line(text):
    assert [item.id for item in read_inputs(text)] == ["a", "b"]


def test_one_object_may_be_spread_over_lines():
    assert [item.id for item in read_inputs(b'{\n  "id": "a",\n  "payload": {}\n}\n')] == ["a"]


@pytest.mark.parametrize("text", [b"", b"  \n\t\n", b"[]", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_jobs(text):
    assert read_inputs(text) == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b'{"id":"a"}\n{"id":}\n{"id":"c"}', "line 2: "),
        (b'{"id":"a"}\n\n\n{"id":7}\n', "line 4: Expected `str | null`, got `int` - at `$.id`"),
        (b'\n\n{"id":"a"}\n{"odd":1}', "line 4: Object contains unknown field `odd`"),
        (b'{"id":"a"}\nnot json', "line 2: "),
        (b'{"id":"a"} {"id":"b"}', "the file: "),
        (b'[{"id":"a"},{"odd":1}]', "the file: Object contains unknown field `odd` - at `$[1]`"),
        (b'[{"id":"a"},\n{"id":]', "the file: "),
        (b'{\n"id":"a",\n"odd":1\n}', "the file: Object contains unknown field `odd`"),
        (b"7", "the file: Expected `object`, got `int`"),
        (b'"x"', "the file: "),
        (b"null", "the file: "),
        (b"\xff\xfe", "the file: "),
        (b"[" * 100_000, "the file: "),
        (b'{"payload":' * 100_000, "the file: "),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(text, where):
    with pytest.raises(PayloadInvalid) as refused:
        read_inputs(text)
    assert str(refused.value).startswith(where)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_with_an_error_of_ours(text):
    try:
        found = read_inputs(text)
    except InvalidInput:
        return
    assert all(isinstance(item, JobInput) for item in found)


def test_status_and_attempts_in_a_file_are_ignored():
    (job,) = take(
        b'{"id":"a","status":"completed","state":7,"attempt":5,"attempts":[1],"payload":{"x":1}}'
    )
    assert (job.state, job.attempt, job.payload) == ("pending", 0, b'{"x":1}')


def test_everything_that_a_job_may_say_is_taken():
    (job,) = take(
        b'{"id":"a","task":"t","queue":"q","priority":-3,"max_attempts":7,"delay":"90s",'
        b'"expires":"1h","unique":"u","tenant":"default","scope":"library:1","payload":{}}'
    )
    assert (job.task, job.queue, job.priority, job.max_attempts) == ("t", "q", -3, 7)
    assert (job.unique, job.scope) == ("u", "library:1")
    assert job.run_at_us - job.created_at_us == 90_000_000
    assert (job.expires_at_us or 0) - job.created_at_us == 3_600_000_000


@pytest.mark.parametrize("moment", ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00+01:00"])
def test_a_time_to_run_is_a_moment_and_without_a_zone_it_is_utc(moment):
    expected = datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1e6
    (job,) = take(f'{{"run_at":"{moment}"}}'.encode())
    (naive,) = take(b'{"run_at":"2030-01-01T00:00:00"}')
    assert job.run_at_us == naive.run_at_us == expected


# --- which task --------------------------------------------------------------------------------


def test_without_an_application_at_hand_the_worker_decides_by_type():
    named, nameless = take(b'[{"task":"t","payload":{"type":"mail"}},{"payload":{"type":"mail"}}]')
    assert (named.task, nameless.task) == ("t", BY_TYPE)
    assert nameless.payload == b'{"type":"mail"}'
    assert (nameless.queue, nameless.max_attempts) == ("default", 4)


def test_with_one_the_type_in_the_payload_names_the_task_and_else_the_default_is_taken():
    jobs = take(
        b'[{"payload":{"type":"mail","to":"ann"}},{"payload":{"type":"odd"}},{"payload":{}}]',
        registry(),
    )
    assert [job.task for job in jobs] == ["mail", SIMULATE, SIMULATE]
    assert jobs[0].payload == b'{"to":"ann"}'


def test_what_a_task_declares_holds_for_jobs_from_a_file_too():
    (job,) = take(b'{"task":"mail","payload":{"to":"ann"}}', registry())
    assert (job.queue, job.priority, job.max_attempts) == ("mail", 7, 9)
    assert (job.estimated_seconds, job.max_processing_seconds) == (60.0, 900.0)


def test_what_the_file_says_goes_over_what_the_task_declares():
    (job,) = take(
        b'{"task":"mail","payload":{"to":"ann"},"queue":"q","priority":0,"max_attempts":1}',
        registry(),
    )
    assert (job.queue, job.priority, job.max_attempts) == ("q", 0, 1)


@pytest.mark.parametrize(
    ("wrong", "where", "said"),
    [
        ({"task": "mail", "payload": {"to": 7}}, "payload", "Expected `str`, got `int`"),
        ({"task": "mail", "payload": {}}, "payload", "missing required field `to`"),
        ({"payload": {"type": "mail", "odd": 1}}, "payload", "unknown field `odd`"),
        ({"task": "nowhere"}, "task", "no task is named 'nowhere'"),
        ({"task": ""}, "task", "''"),
        ({"queue": ""}, "queue", "''"),
        ({"max_attempts": 0}, "max_attempts", "0 is not a whole number from 1"),
        ({"priority": 99_999}, "priority", "99999 is not a whole number"),
        ({"delay": "soon"}, "delay", "'soon' is not a duration"),
        ({"expires": -1}, "expires", "-1"),
        ({"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "delay", "not both"),
        ({"id": ""}, "id", "''"),
        ({"id": "a\nb"}, "id", "printable"),
        ({"scope": "a//b"}, "scope", "a//b"),
        ({"tenant": ""}, "tenant", "''"),
        ({"unique": ""}, "unique", "''"),
        ({"payload": {"x": "y" * 300_000}}, "payload", "300,008 bytes"),
        ({"run_at": "0001-01-01T00:00:00Z"}, "run_at", ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_job_that_is_wrong_is_named_by_its_place_and_none_is_taken(wrong, where, said):
    text = msgspec.json.encode([{"id": "first"}, wrong, {"id": "last"}])

    async def scenario(desk: Desk) -> None:
        with pytest.raises((InvalidInput, UnknownTask)) as refused:
            await desk.take(text)
        assert str(refused.value).startswith(f"job 2: {where}")
        assert said in str(refused.value)
        assert await desk.engine.counts() == {}

    run(scenario, registry())


def test_duplicates_are_refused_all_together_or_skipped():
    async def scenario(desk: Desk) -> None:
        inputs = read_inputs(b'[{"id":"a"},{"id":"b"}]')
        assert created(await desk.operations.enqueue(inputs[:1])) == 1
        with pytest.raises(DuplicateId) as refused:
            await desk.operations.enqueue(inputs)
        assert refused.value.ids == ["a"]
        assert await desk.engine.get(["b"]) == [None]
        receipts = await desk.operations.enqueue(inputs, "skip")
        assert [receipt.admission for receipt in receipts] == [
            Admission.SKIPPED,
            Admission.CREATED,
        ]
        assert created(receipts) == 1

    run(scenario, None)


# --- status and show ---------------------------------------------------------------------------


def test_status_adds_up_the_queues():
    found = status_of({"b": Counts(pending=1, dead=2), "a": Counts(pending=3, completed=4)})
    assert (found.pending, found.in_flight, found.completed, found.dead) == (4, 0, 4, 2)
    assert [item.queue for item in found.queues] == ["a", "b"]
    assert status_of({}).pending == 0


def announced(process_id: str = "life-1", name: str = "w", **fields: Any) -> WorkerProcess:
    """Return a live process with three slots, one of them busy."""
    defaults: dict[str, Any] = {
        "host": "east",
        "pid": 7,
        "version": "1.0",
        "started_at_us": 1,
        "slots": {"": 3},
        "processes": {name: ProcessSlots(3, 1, draining=False)},
        "tasks": ("t",),
    }
    return WorkerProcess(id=process_id, name=name, **{**defaults, **fields})


async def answer(desk: Desk, process: WorkerProcess, **refusal: str) -> None:
    """Answer the next command for a process, as a daemon does."""
    async with asyncio.timeout(10):
        while not (sent := await desk.engine.announce(process, ttl_seconds=60)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    answers = [CommandAnswer(one.id, process.id, **refusal) for one in sent]
    await desk.engine.announce(process, ttl_seconds=60, answers=answers)


def test_status_adds_up_the_live_processes():
    run_of = lambda job: RunningAttempt(job, "t", "default", 1, 2.0, None, "")
    found = status_of(
        {"default": Counts(pending=1), "mail": Counts(pending=1), "slow": Counts(completed=1)},
        [
            announced(queues=("default",), running=(run_of("a"),), totals={"queue_jobs_dead": 2.0}),
            announced(
                *("life-2", "v"),
                slots={"": 1, "mail": 2},
                processes={"v": None, "v-2": ProcessSlots(3, 2, draining=True)},
                queues=("default", "slow"),
                tasks=("t", "u"),
                draining=True,
                running=(run_of("b"),),
                totals={"queue_jobs_dead": 3.0, "recovery_seconds": 1.0},
            ),
        ],
    )
    assert (found.slots, found.totals) == (
        {"": 4, "mail": 2},
        {"queue_jobs_dead": 5.0, "recovery_seconds": 1.0},
    )
    assert list(found.processes) == ["w", "v", "v-2"]
    assert [one.job_id for one in found.running] == ["a", "b"]
    assert (found.draining, found.tasks, found.unserved) == (False, ["t", "u"], ["mail"])
    alone = status_of({"mail": Counts(pending=1)}, [announced(draining=True)])
    assert (list(alone.processes), alone.draining, alone.unserved) == (["1"], True, [])
    assert status_of({"mail": Counts(pending=1)}).unserved == [], "nobody serves anything"


def test_status_has_the_process_beside_it_as_it_is_now():
    async def scenario(desk: Desk) -> None:
        await desk.engine.announce(announced(), ttl_seconds=60)
        assert (await desk.operations.status()).slots == {"": 3}
        now = announced(slots={"": 5})
        beside = Operations(desk.engine, registry(), this_process=lambda: now)
        assert (await beside.status()).slots == {"": 5}

    run(scenario, None)


def test_a_command_goes_to_one_some_or_all_and_is_audited():
    async def scenario(desk: Desk) -> None:
        fleet = desk.operations.fleet
        with pytest.raises(Unavailable, match="no daemon runs"):
            await fleet.targets()
        first = announced(processes={"own/w": None, "own/w-2": None})
        second = announced("life-2", "v", slots={"mail": 2})
        for process in (first, second):
            await desk.engine.announce(process, ttl_seconds=60)
        names = lambda found: [process.name for process in found]
        assert names(await fleet.targets()) == ["v", "w"]
        for name in ("w", "own/w", "w-2", "own/w-2"):
            assert names(await fleet.targets([name])) == ["w"]
        with pytest.raises(InvalidInput, match="no live worker is called 'x'; there are v, w"):
            await fleet.targets(["w", "x"])
        resize = WorkerCommand("resize", slots=5, queue="mail")
        _answered, [done] = await asyncio.gather(
            answer(desk, second), fleet.command(resize, [first, second], WHO)
        )
        assert (done.worker, done.host, done.pid, done.outcome) == ("v", "east", 7, "done")
        _one, _other, results = await asyncio.gather(
            answer(desk, first),
            answer(desk, second, code="invalid_input", text="not now"),
            fleet.command(WorkerCommand("drain"), [first, second], WHO),
        )
        assert [(one.outcome, one.code, one.text) for one in results] == [
            ("done", "", ""),
            ("refused", "invalid_input", "not now"),
        ]
        entries = [record.entry for record in await desk.engine.audited()]
        assert [(one.action, one.user_id, one.reason, one.resource_id) for one in entries] == [
            ("worker.resize", WHO.by, WHO.why, "v"),
            ("worker.drain", WHO.by, WHO.why, ""),
        ]
        assert entries[0].changes == '{"slots":5,"queue":"mail","workers":["v"]}'
        assert entries[1].changes == '{"workers":["w","v"]}'

    run(scenario, None)


def test_a_command_that_nobody_can_do_is_not_sent():
    async def scenario(desk: Desk) -> None:
        command, process = desk.operations.fleet.command, announced()
        await desk.engine.announce(process, ttl_seconds=60)
        with pytest.raises(InvalidInput, match="no slots are reserved for 'x'; there are ''"):
            await command(WorkerCommand("resize", slots=5, queue="x"), [process], WHO)
        with pytest.raises(InvalidInput, match="workers: 0 is not a whole number"):
            await command(WorkerCommand("resize", slots=0), [process], WHO)
        assert await desk.engine.audited() == [], "what was refused leaves none"
        assert await desk.engine.announce(process, ttl_seconds=60) == []

    run(scenario, None)


def test_who_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("holdfast.operations.fleet.COMMAND_SECONDS", 0.01)
    monkeypatch.setattr("holdfast.operations.fleet._ANSWER_SECONDS", 0.0)

    async def scenario(desk: Desk) -> None:
        await desk.engine.announce(announced(), ttl_seconds=60)
        [result] = await desk.operations.fleet.command(WorkerCommand("drain"), [announced()], WHO)
        assert (result.worker, result.outcome) == ("w", "silent")

    run(scenario, None)


def test_nothing_is_sent_where_the_audit_cannot_be_kept(monkeypatch):
    async def scenario(desk: Desk) -> None:
        await desk.engine.announce(announced(), ttl_seconds=60)

        def full(*_args: object, **_more: object) -> None:
            raise StorageFull("no room")

        monkeypatch.setattr(desk.engine._core.log, "add", full)
        with pytest.raises(StorageFull):
            await desk.operations.fleet.command(WorkerCommand("drain"), [announced()], WHO)
        assert await desk.engine.announce(announced(), ttl_seconds=60) == []

    run(scenario, None)


def test_a_job_is_shown_with_dates_and_only_what_is_set():
    async def scenario(desk: Desk) -> None:
        await desk.take(b'{"id":"a","task":"t","payload":{"x":[1]}}')
        shown = msgspec.json.decode(msgspec.json.encode(await desk.operations.show("a")))
        assert shown == {
            "id": "a",
            "status": "pending",
            "task": "t",
            "queue": "default",
            "payload": {"x": [1]},
            "attempt": 0,
            "max_attempts": 4,
            "priority": 0,
            "created_at": "2027-01-15T08:00:00Z",
            "run_at": "2027-01-15T08:00:00Z",
            "version": 1,
        }
        with pytest.raises(JobNotFound, match="there is no job 'b'"):
            await desk.operations.show("b")
        with pytest.raises(JobNotFound):
            await desk.operations.show("a", tenant="other")

    run(scenario, None)


def test_a_job_in_flight_shows_its_lease_and_a_dead_one_its_error():
    async def scenario(desk: Desk) -> None:
        await desk.take(b'{"id":"a","task":"t","max_attempts":1}')
        (job,) = (await desk.engine.claim(queues=["default"], worker="w")).jobs
        view = await desk.operations.show("a")
        assert (view.status, view.worker, view.attempt) == ("in_flight", "w", 1)
        assert view.token == str(job.token)
        assert view.lease_until == datetime(2027, 1, 15, 8, 0, 30, tzinfo=UTC)
        failure = Failure.of("connection", "gone")
        await desk.engine.settle([outcomes.retry(job, failure)])
        view = await desk.operations.show("a")
        assert (view.status, view.error_reason, view.failure_class) == (
            "dead",
            "connection",
            "transient",
        )
        assert view.last_error == "gone"
        assert view.lease_until is None
        assert view.finished_at is not None

    run(scenario, None)


def test_a_completed_job_shows_its_result_and_its_payload():
    async def scenario(desk: Desk) -> None:
        await desk.take(b'{"id":"a","task":"t","payload":{"x":1}}')
        (job,) = (await desk.engine.claim(queues=["default"], worker="w")).jobs
        await desk.engine.settle([outcomes.completed(job, b'{"sent":1}')])
        text = msgspec.json.encode(await desk.operations.show("a"))
        shown = msgspec.json.decode(text)
        assert (shown["status"], shown["result"], shown["payload"]) == (
            "completed",
            {"sent": 1},
            {"x": 1},
        )
        again = msgspec.json.decode(text, type=JobView)  # as the command line reads it
        assert again.result == {"sent": 1}

    run(scenario, None)
