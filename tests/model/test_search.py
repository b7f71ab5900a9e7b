"""Filters and cursors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model.cursor import read_cursor, write_cursor
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import Job, Replays, State, Ties
from holdfast.model.letter_case import folded
from holdfast.model.payload_condition import PayloadCondition
from holdfast.model.search import EVERYTHING, MAX_NAMES, Filter, Order, check_page, place_of

DEAD = Job(
    "j1",
    "acme",
    "library:42/book:7",
    "mail",
    "send",
    b"{}",
    0,
    3,
    created_at_us=100,
    run_at_us=100,
    seq=1,
    state=State.DEAD,
    attempt=2,
    failure=Failure.of("timeout", "Took 31 s"),
    finished_at_us=200,
    ties=Ties("k"),
    replays=Replays(1, 150, "ann", "why", "run1"),
)
PENDING = replace(DEAD, state=State.PENDING, finished_at_us=0, failure=None, replays=None)


@pytest.mark.parametrize(
    ("met", "missed"),
    [
        ({"ids": ("x", "j1")}, {"ids": ("x",)}),
        ({"tenant": "acme"}, {"tenant": "other"}),
        ({"scope": "library:42"}, {"scope": "library:4"}),
        ({"scope": "library:42/book:7"}, {"scope": "library:42/book:7/page:1"}),
        ({"states": (State.DEAD, State.PENDING)}, {"states": (State.PENDING,)}),
        ({"queues": ("mail",)}, {"queues": ("default",)}),
        ({"tasks": ("send",)}, {"tasks": ("read",)}),
        ({"keys": ("k",)}, {"keys": ("l",)}),
        ({"error_reasons": ("timeout",)}, {"error_reasons": ("stuck",)}),
        ({"classes": (FailureClass.TRANSIENT,)}, {"classes": (FailureClass.UNKNOWN,)}),
        ({"fingerprint": "Took <number> s"}, {"fingerprint": "Took"}),
        ({"fingerprint": "Took <number> s"}, {"fingerprint": ""}),
        ({"text": "tOOK 3"}, {"text": "took 4"}),
        ({"attempts_from": 2}, {"attempts_from": 3}),
        ({"attempts_to": 3}, {"attempts_to": 2}),
        ({"created_from_us": 100}, {"created_from_us": 101}),
        ({"created_to_us": 101}, {"created_to_us": 100}),
        ({"finished_from_us": 200}, {"finished_from_us": 201}),
        ({"finished_to_us": 201}, {"finished_to_us": 200}),
        ({"replay_run": "run1"}, {"replay_run": "run2"}),
        ({"replay_run": "run1"}, {"replay_run": ""}),
    ],
    ids=str,
)
def test_each_condition_is_met_or_missed_by_itself(met, missed):
    assert Filter(**met).matches(DEAD)
    assert not Filter(**missed).matches(DEAD)
    assert not Filter(**{**met, **missed}).matches(DEAD)
    assert EVERYTHING.matches(DEAD)


@pytest.mark.parametrize(
    "conditions",
    [
        {"finished_from_us": 0},
        {"finished_to_us": 10**9},
        {"error_reasons": ("timeout",)},
        {"text": "t"},
        {"fingerprint": ""},
        {"replay_run": "run1"},
    ],
    ids=str,
)
def test_what_has_not_finished_failed_or_come_back_does_not_meet_such_conditions(conditions):
    assert not Filter(**conditions).matches(PENDING)
    assert EVERYTHING.matches(PENDING)


def test_an_empty_message_has_an_empty_shape_that_can_be_asked_for() -> None:
    silent = replace(DEAD, failure=Failure.of("timeout", ""))
    wanted = Filter(fingerprint="")
    wanted.check()
    assert wanted.asks_for_failures
    assert wanted.matches(silent)
    assert not wanted.matches(DEAD)


def test_a_job_without_a_key_has_no_key_to_be_found_by() -> None:
    assert not Filter(keys=("None",)).matches(replace(DEAD, ties=Ties()))


@pytest.mark.parametrize(
    ("conditions", "field"),
    [
        ({"ids": ["a"]}, "ids"),
        ({"ids": "a"}, "ids"),
        ({"ids": ("a",) * (MAX_NAMES + 1)}, "ids"),
        ({"queues": ("",)}, "queues"),
        ({"tasks": (7,)}, "tasks"),
        ({"keys": ("a\n",)}, "keys"),
        ({"error_reasons": None}, "error_reasons"),
        ({"states": ("dead",)}, "states"),
        ({"states": None}, "states"),
        ({"classes": ("transient",)}, "classes"),
        ({"classes": 7}, "classes"),
        ({"tenant": ""}, "tenant"),
        ({"scope": ""}, "scope"),
        ({"text": ""}, "text"),
        ({"text": "x" * 201}, "text"),
        ({"fingerprint": 7}, "fingerprint"),
        ({"replay_run": "x" * 201}, "replay_run"),
        ({"attempts_from": -1}, "attempts_from"),
        ({"attempts_to": True}, "attempts_to"),
        ({"created_from_us": 1.5}, "created_from_us"),
        ({"finished_to_us": 2**63}, "finished_to_us"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_condition_that_makes_no_sense_is_named(conditions, field):
    with pytest.raises(InvalidInput) as refused:
        Filter(**conditions).check()
    assert refused.value.field == field


def test_whether_only_unfinished_jobs_can_meet_it() -> None:
    assert Filter(states=(State.PENDING, State.BLOCKED)).states_are_unfinished
    assert not Filter(states=(State.PENDING, State.DEAD)).states_are_unfinished
    assert not EVERYTHING.states_are_unfinished


@given(st.tuples(st.integers(0, 2**62), st.text(min_size=1), st.text(min_size=1)))
def test_a_cursor_leads_back_to_its_place(place: tuple[int, str, str]) -> None:
    cursor = write_cursor(place)
    assert read_cursor(cursor) == place
    assert cursor.isascii()
    assert not set(cursor) & set("+/=&? ")


def test_no_cursor_is_the_beginning() -> None:
    assert read_cursor("") is None
    assert read_cursor(write_cursor(place_of(DEAD))) == (100, "acme", "j1")


@pytest.mark.parametrize(
    "cursor", ["x", "AAAA", "ä", "gqNmb28", "k2QBAQ", "====", None, 7, b"AAAA"]
)
def test_what_is_no_cursor_is_refused(cursor):
    with pytest.raises(InvalidInput) as refused:
        read_cursor(cursor)
    assert refused.value.field == "cursor"


@given(st.text())
def test_any_text_is_a_cursor_or_refused(cursor: str) -> None:
    try:
        place = read_cursor(cursor)
    except InvalidInput:
        return
    assert (place is None) is (cursor == "")


@pytest.mark.parametrize(("limit", "good"), [(1, True), (1_000, True), (0, False), (1_001, False)])
def test_a_page_has_a_size(limit: int, good: bool) -> None:
    if good:
        check_page(limit)
        return
    with pytest.raises(InvalidInput):
        check_page(limit)


def test_only_ascii_letters_are_folded() -> None:
    assert folded("Straße ÄÖ I 7") == "straße ÄÖ i 7"


def test_a_filter_of_a_later_version_is_refused_rather_than_widened() -> None:
    later = [*msgspec.to_builtins(Filter(queues=("mail",))), ["a new condition"]]
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=Filter)
    earlier = msgspec.to_builtins(Filter(queues=("mail",)))[:18]
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(earlier), type=Filter)
    assert decoded == Filter(queues=("mail",))


@pytest.mark.parametrize(
    ("payload", "path", "value", "met"),
    [
        (b'{"a":{"b":[1,{"c":"x"}]}}', ["a", "b", "1", "c"], "x", True),
        (b'{"a":1}', ["a"], 1.0, True),
        (b'{"a":1}', ["a"], True, False),
        (b'{"a":true}', ["a"], 1, False),
        (b'{"a":"1"}', ["a"], 1, False),
        (b'{"a":null}', ["a"], None, True),
        (b"{}", ["a"], None, False),
        (b'{"a":[]}', ["a", "0"], None, False),
        (b'{"a":[1]}', ["a", "-1"], 1, False),
        (b'{"a":{"b":[1,true],"c":2}}', ["a"], {"c": 2, "b": [1.0, True]}, True),
        (b'{"a":{"b":[1,true],"c":2}}', ["a"], {"c": 2, "b": [1, 1]}, False),
        (b'{"a":[1]}', ["a"], [1, 2], False),
        (b"", ["a"], 1, False),
        (b"{", ["a"], 1, False),
    ],
)
def test_a_payload_is_compared_as_json(payload, path, value, met):
    wanted = Filter(payload=(PayloadCondition.of(path, value),))
    wanted.check()
    assert wanted.matches(replace(DEAD, payload=payload)) is met


def test_a_worker_is_met_with_or_without_what_stands_before_it() -> None:
    job = replace(DEAD, worker="own/host-1")
    assert Filter(workers=("host-1",)).matches(job)
    assert Filter(workers=("x", "own/host-1")).matches(job)
    assert not Filter(workers=("host", "ost-1", "own")).matches(job)


def test_without_excludes_what_meets_any_of_its_filters() -> None:
    wanted = Filter(without=(Filter(queues=("x",)), Filter(error_reasons=("timeout",))))
    wanted.check()
    assert not wanted.matches(DEAD)
    assert wanted.matches(PENDING), "it has not failed, so it did not fail for that reason"
    assert not wanted.matches(replace(PENDING, queue="x"))


@pytest.mark.parametrize(
    ("order", "wanted", "states"),
    [
        (Order.CREATED, Filter(), ()),
        (Order.FINISHED, Filter(states=(State.DEAD, State.PENDING)), (State.DEAD,)),
        (Order.RUN_AT, Filter(states=(State.DEAD, State.PENDING)), (State.PENDING,)),
    ],
)
def test_an_order_lists_jobs_that_have_what_it_goes_by(order, wanted, states):
    assert order.of_listed(wanted).states == states
    nothing = order.of_listed(Filter(states=(State.DEAD,)))
    assert nothing.matches(DEAD) is (order is not Order.RUN_AT)
