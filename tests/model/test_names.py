"""Every door takes the same names: printable, and no longer than the table of limits says."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import job, read_model, subscription
from holdfast.model.actions import ArchiveJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput, JobNotFound, UnknownGroup
from holdfast.model.event import NewEvent, default_key
from holdfast.model.group_life import GroupChange, GroupVerb
from holdfast.model.job import NAME_LIMIT, NewJob
from holdfast.model.operation import NewOperation
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import check_projection_name
from holdfast.model.search import Filter
from holdfast.model.subscription import Subscription
from holdfast.worker.schedules import Schedule

WHO = Attribution("anna", "why")
BAD = ("", "a\nb", "a\x1b", "a\u202e", "\ud800", "x" * (NAME_LIMIT + 1))
SOURCES = Path(holdfast.__file__).parent

Door = Callable[[MemoryEngine, str], Awaitable[object]]


def job_with(field: str) -> Door:
    return lambda engine, name: engine.enqueue([replace(NewJob(task="t"), **{field: name})])


def event_with(field: str) -> Door:
    new = NewEvent(event_type="a.b", entity_type="a", entity_id="1", actor_id="1")
    return lambda engine, name: engine.append([replace(new, **{field: name})])


def subscribe(engine: MemoryEngine, name: str) -> Awaitable[object]:
    made = Subscription(name=name, event_types=("a.b",), task="t", queue="q")
    return engine.set_subscription(name, made, WHO)


async def schedule(_engine: MemoryEngine, name: str) -> object:
    return Schedule(name=name, expression="* * * * *", task="t")


DOORS: dict[str, Door] = {
    **{f"a job's {one}": job_with(one) for one in ("id", "queue", "task", "tenant", "key")},
    "a unique key": job_with("unique"),
    "a dependency": lambda engine, name: engine.enqueue([NewJob(task="t", depends_on=(name,))]),
    "a scope": lambda engine, name: engine.enqueue([NewJob(task="t", scope=f"a/{name}")]),
    **{
        f"an event's {one}": event_with(one)
        for one in ("event_type", "entity_type", "entity_id", "actor_id", "tenant", "key")
    },
    "a claimed queue": lambda engine, name: engine.claim(queues=[name], worker="w"),
    "a claimed task": lambda engine, name: engine.claim(queues=["q"], tasks=[name], worker="w"),
    "a worker": lambda engine, name: engine.claim(queues=["q"], worker=name),
    "a policy": lambda engine, name: engine.set_policy(name, QueuePolicy(paused=True), WHO),
    "a flag": lambda engine, name: engine.set_flag(name, WHO, on=True),
    "a stored schedule": lambda engine, name: engine.set_schedule(name, None, WHO),
    "a schedule": schedule,
    "a subscription": subscribe,
    "a group": lambda engine, name: engine.set_group(name, GroupChange(GroupVerb.REOPEN), WHO),
    "an operation": lambda engine, name: engine.start_operation(
        NewOperation(id=name, action=ArchiveJobs(), wanted=Filter(ids=("a",))), WHO
    ),
    "a filter": lambda engine, name: engine.find(Filter(queues=(name,))),
}


async def refused(door: Door) -> list[str]:
    """Return the bad names that it refuses with the typed error."""
    engine = MemoryEngine()
    out = []
    for name in BAD:
        try:
            await door(engine, name)
        except InvalidInput:
            out.append(name)
        except (UnknownGroup, JobNotFound):
            pass
    return out


@pytest.mark.parametrize("name", DOORS)
def test_every_door_refuses_the_same_names(name):
    bad = list(BAD)
    if name == "a scope":
        bad.pop()  # it has a limit of its own
    assert asyncio.run(refused(DOORS[name])) == bad


def test_control_without_the_rule_every_door_takes_them(monkeypatch):
    job._shared.cache_clear()
    job._kind.cache_clear()
    monkeypatch.setattr(job, "is_name", lambda value: True)
    unnoticed = [
        name
        for name, door in DOORS.items()
        # A scope has a rule of its own, and no such dependency exists.
        if name not in ("a scope", "a dependency") and "a\nb" in asyncio.run(refused(door))
    ]
    job._shared.cache_clear()
    job._kind.cache_clear()
    assert unnoticed == []


def test_projections_and_tables_share_one_rule():
    longest = "p" * read_model.NAME_LIMIT
    assert check_projection_name(longest) == longest
    for name in ("", "A", "1a", "_a", "a-b", "ä", "a\n", longest + "p"):
        with pytest.raises(InvalidInput):
            check_projection_name(name)


def test_a_key_that_is_made_of_names_is_a_name():
    assert len(default_key("x" * NAME_LIMIT, "y" * NAME_LIMIT)) == NAME_LIMIT
    assert subscription.MAX_NAME < NAME_LIMIT


def test_the_limit_is_written_once():
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(rf"\b{NAME_LIMIT}\b|isprintable\(\)", line)
    ]
    assert sorted({one.partition(":")[0] for one in found}) == [
        "job.py",
        "store_url.py",
        "visible_text.py",
    ]
