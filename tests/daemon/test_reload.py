"""Reading settings again: what changes, what stays, what is said."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.daemon.reload import RELOADABLE, SettingsReloader
from holdfast.daemon.worker_settings import worker_options
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import InvalidInput, StorageFull, Unavailable
from holdfast.model.retry import RetryPolicy
from holdfast.operations.attribution import Author
from holdfast.operations.operations import Operations
from holdfast.settings import DEFAULT_FILE, LoadedSettings, Settings, load
from holdfast.worker.options import WorkerOptions
from tests.settings.samples import FIELDS, SAMPLES
from tests.worker.world import World, spec_of

ROOT = Path(__file__).parent.parent.parent
OPERATOR = Attribution("ann", "an incident")
ANN = Author("ann", "an incident")


class Rig:
    """Settings in a file, and whatever reads them again."""

    def __init__(self, text: str = "", *, can_apply: bool = True) -> None:
        self.taken: list[Settings] = []
        self.engine = MemoryEngine()
        self.write(text)
        self.reloading = SettingsReloader(
            self.load(),
            self.load,
            Operations(self.engine),
            can_apply=lambda _wanted: can_apply,
            apply=self.taken.append,
        )

    def write(self, text: str) -> None:
        Path("s.yaml").write_text(text)

    def load(self) -> LoadedSettings:
        return load("s.yaml", environ={})

    async def entries(self) -> list[AuditEntry]:
        return [record.entry for record in await self.engine.audited()]

    def running(self) -> dict[str, object]:
        return self.reloading.running().settings


async def test_every_setting_is_taken_over_or_said_to_need_a_restart() -> None:
    rig = Rig()
    for field in FIELDS:
        rig.write(f'{field}: "{SAMPLES[field][0]}"\n')
        report = await rig.reloading.reload(ANN)
        changed = {change.field for change in report.changed}
        fixed = {change.field for change in report.needs_restart}
        assert field in (changed if field in RELOADABLE else fixed), field
        assert not changed - set(RELOADABLE)
        assert not fixed & set(RELOADABLE)
        now = rig.running()[field]
        assert (now == SAMPLES[field][1]) == (field in RELOADABLE), field
        change = {one.field: one for one in report.changed + report.needs_restart}[field]
        assert change.origin == "file s.yaml"
        assert change.before != change.after
        rig.write("")
        await rig.reloading.reload(ANN)


def test_the_file_in_the_repository_marks_what_can_change() -> None:
    marked, comment = set(), ""
    for line in (ROOT / DEFAULT_FILE).read_text().splitlines():
        if line.startswith("# * "):
            comment = "*"
        elif not line.startswith("#"):
            if line and comment == "*":
                marked.add(line.partition(":")[0])
            comment = ""
    assert marked == set(RELOADABLE)


async def test_what_needs_a_restart_is_said_until_there_was_one() -> None:
    rig = Rig()
    rig.write("metrics_port: 9191\nworker_count: 4\n")
    for expected in (["worker_count"], []):
        report = await rig.reloading.reload(ANN)
        assert [change.field for change in report.changed] == expected
        [fixed] = report.needs_restart
        assert (fixed.field, fixed.before, fixed.after) == ("metrics_port", "9090", "9191")
    assert rig.running()["metrics_port"] == 9090
    assert rig.reloading.running().origins["metrics_port"] == "default"
    assert rig.reloading.running().origins["worker_count"] == "file s.yaml"


@pytest.mark.parametrize(
    "text",
    [
        "worker_count: 4\nlog_level: loud\n",
        "worker_count: 4\nno: 1\n",
        "worker_count: [",
        "x",
    ],
)
async def test_a_bad_file_is_refused_whole(text: str) -> None:
    rig = Rig("worker_count: 2\n")
    rig.write(text)
    with pytest.raises(InvalidInput):
        await rig.reloading.reload(ANN)
    assert rig.taken == []
    assert rig.running()["worker_count"] == 2
    rig.write("worker_count: 3\n")
    await rig.reloading.reload(ANN)
    assert [settings.worker_count for settings in rig.taken] == [3]


async def test_what_clashes_only_with_what_needs_a_restart_is_refused_too() -> None:
    rig = Rig("max_processing_seconds: 10m\n")
    rig.write("max_processing_seconds: 1h\nlease_seconds: 20m\n")
    with pytest.raises(InvalidInput, match="lease_seconds: 20m is more than"):
        await rig.reloading.reload(ANN)
    assert rig.running()["lease_seconds"] == 30.0


async def test_other_queues_need_a_restart() -> None:
    rig = Rig("queues: mail:8\n", can_apply=False)
    rig.write("queues: slow:2\nworker_count: 4\n")
    report = await rig.reloading.reload(ANN)
    assert [change.field for change in report.changed] == ["worker_count"]
    assert [change.field for change in report.needs_restart] == ["queues"]
    assert rig.running()["queues"] == "mail:8"


async def test_there_may_be_nowhere_to_read_from() -> None:
    reloading = SettingsReloader(
        load(environ={}),
        None,
        Operations(MemoryEngine()),
        can_apply=lambda _wanted: True,
        apply=lambda _settings: None,
    )
    with pytest.raises(Unavailable):
        await reloading.reload(ANN)


# --- the audit --------------------------------------------------------------------------------


async def test_a_reload_leaves_one_entry_with_the_names_of_what_changed() -> None:
    rig = Rig()
    rig.write("worker_count: 4\nmax_attempts: 7\nmetrics_port: 9191\n")
    await rig.reloading.reload(ANN)
    (entry,) = await rig.entries()
    assert (entry.action, entry.resource_type) == ("config.reload", "config")
    assert (entry.user_id, entry.reason) == ("ann", "an incident")
    assert entry.changes == '{"changed":["worker_count","max_attempts"]}'
    await rig.reloading.reload(ANN)
    rig.write("worker_count: many\n")
    with pytest.raises(InvalidInput):
        await rig.reloading.reload(ANN)
    assert await rig.entries() == [entry], "nothing changed, so there is nothing to keep"


async def test_a_signal_reloads_in_the_name_of_the_settings() -> None:
    rig = Rig()
    rig.write("worker_count: 4\n")
    rig.reloading.reload_soon()
    while not rig.taken:  # noqa: ASYNC110
        await asyncio.sleep(0)
    (entry,) = await rig.entries()
    assert (entry.action, entry.user_id, entry.reason) == (
        *("config.reload", "settings"),
        "SIGHUP",
    )


async def test_what_cannot_be_kept_in_the_audit_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.write("worker_count: 3\n")

    async def full(*_args: object, **_more: object) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(rig.engine, "audit", full)
    with pytest.raises(StorageFull):
        await rig.reloading.reload(ANN)
    assert rig.taken == []
    assert rig.running()["worker_count"] == 8


# --- flags ------------------------------------------------------------------------------------


async def test_flags_are_switched_with_who_and_why() -> None:
    rig = Rig()
    rig.write("flags: {fast: on, slow: off}\n")
    report = await rig.reloading.reload(ANN)
    assert [change.after for change in report.changed] == ['{"fast":true,"slow":false}']
    assert await rig.engine.flags() == {"fast": True, "slow": False}
    *entries, reload = await rig.entries()
    assert [(entry.action, entry.resource_id, entry.changes) for entry in entries] == [
        ("flag.set", "fast", '{"before":{"on":null},"after":{"on":true}}'),
        ("flag.set", "slow", '{"before":{"on":null},"after":{"on":false}}'),
    ]
    assert {(entry.user_id, entry.reason) for entry in entries} == {("settings", "file s.yaml")}
    assert (reload.action, reload.changes) == ("config.reload", '{"changed":["flags"]}')


async def test_a_flag_that_a_person_switched_is_left_alone_by_a_reload_of_something_else() -> None:
    rig = Rig("flags: {fast: on}\n")
    await rig.reloading.switch_flags(await rig.engine.flags(), rig.load())
    assert await rig.engine.flags() == {"fast": True}
    await rig.engine.set_flag("fast", OPERATOR, on=False)
    rig.write("flags: {fast: on}\nworker_count: 3\n")
    await rig.reloading.reload(ANN)
    assert await rig.engine.flags() == {"fast": False}
    rig.write("flags: {fast: on, more: on}\n")
    await rig.reloading.reload(ANN)
    assert await rig.engine.flags() == {"fast": False, "more": True}


async def test_a_flag_that_is_named_no_more_stays_and_that_is_said() -> None:
    rig = Rig("flags: {fast: on}\n")
    await rig.reloading.switch_flags({}, rig.load())
    rig.write("")
    report = await rig.reloading.reload(ANN)
    assert report.warnings == [
        "flags: fast stays on: it is not named any more, and nothing switches it back"
    ]
    assert await rig.engine.flags() == {"fast": True}


async def test_a_store_that_refuses_a_flag_refuses_the_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.write("flags: {fast: on}\nworker_count: 3\n")

    async def full(*_args: object, **_more: object) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(rig.engine, "set_flag", full)
    with pytest.raises(StorageFull):
        await rig.reloading.reload(ANN)
    assert rig.taken == []
    monkeypatch.undo()


# --- the worker -------------------------------------------------------------------------------


def changing(scenario: Callable[[World], Coroutine[Any, Any, None]], **said: object) -> None:
    world = World()
    world.options = options(**said)
    world.registry.add_task(spec_of(world.busy))
    world.run(scenario)


def options(**said: object) -> WorkerOptions:
    return worker_options(load(environ={}, flags=said).settings)


def test_slots_of_queues_change_and_what_was_resized_by_hand_stays() -> None:
    async def scenario(world: World) -> None:
        worker = world.start()
        worker.resize(5, "slow")
        worker.change(options(queues="mail:4,slow:2"))
        assert worker.slots == {"mail": 4, "slow": 5}
        worker.change(options(queues="mail:4,slow:3"))
        assert worker.slots == {"mail": 4, "slow": 3}
        with pytest.raises(InvalidInput, match="queues"):
            worker.change(options(queues="mail:1,fast:3"))
        with pytest.raises(InvalidInput, match="queues"):
            worker.change(options())
        assert worker.slots == {"mail": 4, "slow": 3}
        await world.stop()

    changing(scenario, queues="mail:8,slow:2")


def test_a_claim_goes_by_the_new_batch_size_and_the_new_lease() -> None:
    async def scenario(world: World) -> None:
        worker = world.start()
        await world.enqueue("busy", 8, payload={"seconds": 0})
        await world.until_state(completed=8)
        assert max(world.engine.demands) == 8
        worker.change(options(batch_size=2, lease_seconds=45))
        await asyncio.sleep(2.0)  # of virtual time: the claim that waits is still of the old size
        world.engine.demands.clear()
        ids = await world.enqueue("busy", 8, payload={"seconds": 5})
        await world.until_state(completed=8, in_flight=8)
        assert max(world.engine.demands) == 2
        job = await world.job(ids[-1])
        assert (job.lease_until_us - job.claimed_at_us) / 1_000_000 == 45.0
        await world.stop(0.0)

    changing(scenario)


def test_failures_are_judged_by_the_new_backoff() -> None:
    async def scenario(world: World) -> None:
        async def fail() -> None:
            raise ConnectionError("it is away")

        world.registry.add_task(spec_of(fail))
        worker = world.start()
        worker.change(options(base_backoff_seconds=0, max_backoff_seconds=0))
        before = world.clock.now_us()
        await world.enqueue("fail", max_attempts=20)
        await world.until_state(dead=1)
        assert world.clock.now_us() - before < 1_000_000, "no waiting at all"
        await world.stop()

    changing(scenario, base_backoff_seconds=100, max_backoff_seconds=200)


def test_a_child_of_old_limits_ends_with_its_job() -> None:
    world = World(real=True, slots=1, task_timeout_seconds=60.0)

    async def scenario(world: World) -> None:
        from holdfast.worker.app_loader import load_registry  # noqa: PLC0415

        world.registry = load_registry(str(Path(__file__).parents[1] / "settings" / "app.py"))
        worker = world.start(leases=None)
        for step, (limit, state) in enumerate(
            [(None, "completed"), (None, "completed"), (512 << 20, "dead"), (None, "completed")], 1
        ):
            worker.change(options_with(limit))
            [job_id] = await world.enqueue("fill", payload={"megabytes": 600}, max_attempts=1)
            while (await world.job(job_id)).state.value not in ("completed", "dead"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await world.job(job_id)).state.value == state, step
        await world.stop(0.0)

    def options_with(limit: int | None) -> WorkerOptions:
        return WorkerOptions(
            slots=1, task_timeout_seconds=60.0, memory_limit_bytes=limit, retry=RetryPolicy()
        )

    world.run(scenario)
