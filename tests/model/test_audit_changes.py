"""What audit entries say about a change: paths of payloads and never their values."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.model.audit import AuditEntry
from holdfast.model.audit_changes import (
    MAX_AUDITED_IDS,
    MAX_PATH_LENGTH,
    facts_of,
    payload_paths,
    schedule_facts,
    with_facts,
)
from holdfast.model.effects import Edited, ScheduleState
from holdfast.model.job import Job, encode_payload


def job(payload: dict[str, object] | None = None, **fields: object) -> Job:
    found = Job("j", "default", "", "q", "t", encode_payload(payload or {}), 0, 3, 1, 1, 1)
    return replace(found, **fields)


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["payload.a"]),
        ({"a": 1}, {"a": True}, ["payload.a"]),
        ({"a": 1}, {"b": 1}, ["payload.a", "payload.b"]),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}, ["payload.a.b.c"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["payload.a[1]"]),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, ["payload.a"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["payload.a[0].b"]),
        ({"a": {"b": 1}}, {"a": None}, ["payload.a"]),
        ({"k" * 300: 1}, {}, [("payload." + "k" * 300)[:MAX_PATH_LENGTH]]),
    ],
)
def test_paths_name_what_differs(before, after, paths):
    assert payload_paths(job(before), job(after)) == paths


def test_a_payload_that_was_dropped_differs_in_all_its_fields():
    assert payload_paths(replace(job(), payload=b""), job({"a": 1})) == ["payload.a"]


def test_a_bulk_edit_names_the_paths_of_all_and_the_values_of_none():
    edits = [
        (job({"n": 1}, id="a"), Edited(1, job({"n": 2}, id="a", priority=4), "ann", "why", b"")),
        (job({"m": 1}, id="b"), Edited(1, job({"m": 2}, id="b"), "ann", "why", b"")),
    ]
    assert facts_of(edits) == {
        "count": 2,
        "ids": ["a", "b"],
        "payload": ["payload.m", "payload.n"],
    }


def test_what_an_entry_names_is_bounded():
    many = [(job(id=f"j{n}", tenant=f"t{n}"), Edited(1, job(), "a", "b", None)) for n in range(150)]
    facts = facts_of(many)
    assert facts["count"] == 150
    for name in ("ids", "tenants"):
        names = facts[name]
        assert isinstance(names, list)
        assert len(names) == MAX_AUDITED_IDS


def test_facts_are_added_to_what_an_entry_says_already():
    entry = AuditEntry("a", "b", "c", "d", '{"queues":["q"],"count":9}')
    [found] = with_facts([entry], {"count": 1})
    assert found == replace(entry, changes='{"queues":["q"],"count":1}')
    assert with_facts([], {"count": 1}) == ()


def test_a_removed_schedule_keeps_what_it_was():
    schedule = ScheduleState("@daily", "UTC", "t", "q")
    facts = schedule_facts(schedule, None)
    assert facts["after"] is None
    before = facts["before"]
    assert isinstance(before, dict)
    assert before["task"] == "t"
