"""Filters as one line: what each word means, what is refused and how, and the way back to text."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.filter_format import format_filter
from holdfast.model.filter_grammar import compile_filter
from holdfast.model.filter_intersection import intersection
from holdfast.model.filter_terms import MAX_LENGTH, MAX_TERMS
from holdfast.model.filter_words import WORDS
from holdfast.model.job import MAX_TIME_US, Job, Replays, State, Ties
from holdfast.model.payload_condition import PayloadCondition
from holdfast.model.search import EVERYTHING, Filter

NOW_US = 1_800_000_000_000_000
HOUR_US = 3_600_000_000
DEAD = (State.DEAD, State.ARCHIVED)
JANUARY_US = 1_798_761_600_000_000
"""2027-01-01."""


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("", {}),
        ("  \n ", {}),
        ("queue:mail", {"queues": ("mail",)}),
        ("queue:mail,sms queue=fax queue:mail", {"queues": ("mail", "sms", "fax")}),
        ('queue:"a b","c,d"', {"queues": ("a b", "c,d")}),
        ("QUEUE:Mail", {"queues": ("Mail",)}),
        ("task:send", {"tasks": ("send",)}),
        ("key:k:1,k2", {"keys": ("k:1", "k2")}),
        ("id:a,b", {"ids": ("a", "b")}),
        ("worker:host-1", {"workers": ("host-1",)}),
        ("reason:timeout", {"error_reasons": ("timeout",)}),
        ("error_reason:timeout", {"error_reasons": ("timeout",)}),
        ("status:dead,Pending", {"states": (State.DEAD, State.PENDING)}),
        ("status:failed,processing,done", {"states": (State.DEAD, State.IN_FLIGHT, "completed")}),
        ("state:in-flight", {"states": (State.IN_FLIGHT,)}),
        ("class:transient", {"classes": (FailureClass.TRANSIENT,)}),
        ("scope:library:9/book:1", {"scope": "library:9/book:1"}),
        ("tenant:acme tenant:acme", {"tenant": "acme"}),
        ('fingerprint:"took <n> s"', {"fingerprint": "took <n> s"}),
        ('fingerprint:""', {"fingerprint": ""}),
        ('"exact \\"text\\""', {"text": 'exact "text"'}),
        ("text:503", {"text": "503"}),
        ("run:r1", {"replay_run": "r1"}),
        ("operation:r1", {"replay_run": "r1"}),
        ("attempts:3", {"attempts_from": 3, "attempts_to": 4}),
        ("attempts:2-5", {"attempts_from": 2, "attempts_to": 6}),
        ("attempts:3+", {"attempts_from": 3}),
        ("attempts>3", {"attempts_from": 4}),
        ("attempts>=3 attempts<=5", {"attempts_from": 3, "attempts_to": 6}),
        ("attempts<5 attempts<7", {"attempts_to": 5}),
        ("age>2h", {"created_to_us": NOW_US - 2 * HOUR_US}),
        ("age>=2h", {"created_to_us": NOW_US - 2 * HOUR_US + 1}),
        ("age<2h", {"created_from_us": NOW_US - 2 * HOUR_US + 1}),
        ("age<=2h", {"created_from_us": NOW_US - 2 * HOUR_US}),
        ("age>2h age>3h", {"created_to_us": NOW_US - 3 * HOUR_US}),
        ("created<2h", {"created_from_us": NOW_US - 2 * HOUR_US + 1}),
        ("created<2027-01-01", {"created_to_us": JANUARY_US}),
        ("created>2027-01-01T00:00:00Z", {"created_from_us": JANUARY_US + 1}),
        ("created>=@1798761600.5", {"created_from_us": JANUARY_US + 500_000}),
        ("created>=2027-01-01T01:00+01:00", {"created_from_us": JANUARY_US}),
        (
            "finished:2027-01-01..now",
            {"finished_from_us": JANUARY_US, "finished_to_us": NOW_US},
        ),
        (
            "finished:1h..3h",
            {"finished_from_us": NOW_US - 3 * HOUR_US, "finished_to_us": NOW_US - HOUR_US},
        ),
        ("finished<=1w", {"finished_from_us": NOW_US - 168 * HOUR_US}),
        ("died<=1h", {"finished_from_us": NOW_US - HOUR_US, "states": DEAD}),
        (
            "died<=1h status:failed,done",
            {"finished_from_us": NOW_US - HOUR_US, "states": ("dead",)},
        ),
        ("payload.user.id=42", {"payload": (PayloadCondition(("user", "id"), ("42",)),)}),
        ("payload.a=de", {"payload": (PayloadCondition(("a",), ('"de"',)),)}),
        ('payload.a="42"', {"payload": (PayloadCondition(("a",), ('"42"',)),)}),
        ("payload.a=007", {"payload": (PayloadCondition(("a",), ('"007"',)),)}),
        (
            'payload."a.b".0=null,true,[1, 2] payload.c={"d": "e f"} payload.c=1',
            {
                "payload": (
                    PayloadCondition(("a.b", "0"), ("null", "true", "[1,2]")),
                    PayloadCondition(("c",), ('{"d":"e f"}', "1")),
                )
            },
        ),
        ("-queue:a,b", {"without": (Filter(queues=("a", "b")),)}),
        ("queue!=a -queue:a", {"without": (Filter(queues=("a",)),)}),
        ("-queue!=a", {"queues": ("a",)}),
        (
            '-"text" -age>1h',
            {"without": (Filter(text="text"), Filter(created_to_us=NOW_US - HOUR_US))},
        ),
        ("payload.a!=1", {"without": (Filter(payload=(PayloadCondition(("a",), ("1",)),)),)}),
        (
            'queue:mail reason:timeout,upstream_5xx age>2h payload.user.id=42 -scope:a:9 "x y"',
            {
                "queues": ("mail",),
                "error_reasons": ("timeout", "upstream_5xx"),
                "created_to_us": NOW_US - 2 * HOUR_US,
                "payload": (PayloadCondition.of(["user", "id"], 42),),
                "without": (Filter(scope="a:9"),),
                "text": "x y",
            },
        ),
    ],
)
def test_what_a_text_means(text, conditions):
    expected = Filter(**conditions)
    compiled = compile_filter(text, NOW_US)
    assert compiled == expected
    compiled.check()
    hash(compiled)
    assert compile_filter(format_filter(compiled), 0) == expected, "times are absolute"


@pytest.mark.parametrize(
    ("text", "named", "at", "advice"),
    [
        ("quue:mail", "quue:mail", 1, "did you mean 'queue'?"),
        ("queue:a  rason:timeout", "rason:timeout", 10, "did you mean 'reason'?"),
        ("xyz:1", "xyz:1", 1, "there are age, attempt"),
        ("mail", "mail", 1, 'to look for a text write "mail"'),
        ("queue:a b", "b", 9, 'write "b"'),
        ("queue", "queue", 1, "as in queue:VALUE"),
        ("queue:", "queue:", 1, "a value is missing"),
        ("queue:a,", "queue:a,", 1, "a value is missing"),
        ("queue: a", "queue:", 1, "a value is missing"),
        ("-", "-", 1, "a condition is missing"),
        ('queue:"a"b', 'queue:"a"b', 1, "put a space"),
        ('queue:"a', 'queue:"a', 1, 'a closing "'),
        ('"a', '"a', 1, 'a closing "'),
        ("status:ded", "status:ded", 1, "did you mean 'dead'?"),
        ("class:trans", "class:trans", 1, "did you mean 'transient'?"),
        ("queue>3", "queue>3", 1, "queue:VALUE"),
        ("tenant:a,b", "tenant:a,b", 1, "give one tenant"),
        ("tenant:a tenant:b", "tenant:b", 10, "another tenant"),
        ('"a" "b"', '"b"', 5, "another text"),
        ("scope:a//b", "scope:a//b", 1, "not a path"),
        ('queue:""', 'queue:""', 1, "printable"),
        ('text:""', 'text:""', 1, "at most 200"),
        ("attempts:many", "attempts:many", 1, "2-5 or 3+"),
        ("attempts>2-5", "attempts>2-5", 1, "one number"),
        ("attempts:1,2", "attempts:1,2", 1, "one value"),
        (f"attempts:{2**63}", f"attempts:{2**63}", 1, "whole number"),
        ("age>2027-01-01", "age>2027-01-01", 1, "not an age"),
        ("age:2h", "age:2h", 1, "age>2h"),
        ("created:2027-01-01", "created:2027-01-01", 1, "FROM..TO"),
        ("created>soon", "created>soon", 1, "neither a date"),
        ("created:2027-01-01..", "created:2027-01-01..", 1, "neither a date"),
        ("-died<1h", "-died<1h", 1, "-finished"),
        ("status:pending died<1h", "died<1h", 16, "another status"),
        ("payload=1", "payload=1", 1, "payload.user.id=42"),
        ("payload.=1", "payload.=1", 1, "name a field"),
        ("payload.a>1", "payload.a>1", 1, "payload:VALUE"),
        ("payload.a=[1", "payload.a=[1", 1, "not JSON"),
        ("payload.a=" + "[" * 5_000, "payload.a=", 1, "not JSON"),
        ("payload.a." + "a." * 40 + "a=1", "payload.a.a", 1, "1 to 32 names"),
        (" ".join(["queue:a"] * (MAX_TERMS + 1)), "queue:a", 8 * MAX_TERMS + 1, "at most 100"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_error_names_the_condition_its_place_and_what_to_do(text, named, at, advice):
    with pytest.raises(InvalidInput) as refused:
        compile_filter(text, NOW_US)
    assert refused.value.field == "filter"
    assert f"at character {at}: " in refused.value.problem
    assert refused.value.problem.startswith(f"{named!r}"[:10])
    assert advice in refused.value.problem
    assert len(refused.value.problem) < 400


@pytest.mark.parametrize("text", ["x" * (MAX_LENGTH + 1), None, b"queue:a"])
def test_a_text_has_a_bound(text):
    with pytest.raises(InvalidInput, match="8,000 characters"):
        compile_filter(text, NOW_US)


@given(st.text(max_size=60) | st.text("-!<>=:.,\"'[]{}ab1 \\", max_size=40))
def test_any_text_is_a_filter_or_refused(text):
    try:
        compiled = compile_filter(text, NOW_US)
    except InvalidInput:
        return
    compiled.check()
    assert compile_filter(format_filter(compiled), NOW_US) == compiled


# --- the way back -------------------------------------------------------------------------------

names = st.text(
    st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=12
)
texts = st.text(min_size=1, max_size=20) | st.text("\ud800\n\\\"', ", min_size=1, max_size=5)
numbers = st.integers(0, MAX_TIME_US) | st.integers(0, 3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=5,
)
parts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


def several(what):
    return st.lists(what, min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def payload_conditions(draw):
    path = draw(st.lists(parts, min_size=1, max_size=3))
    condition = PayloadCondition.of(path, *draw(st.lists(values, min_size=1, max_size=3)))
    return PayloadCondition(condition.path, tuple(dict.fromkeys(condition.values)))


scopes = names.map(lambda name: "/".join(filter(None, name.split("/"))) or "x")
CONDITIONS = {
    **dict.fromkeys(("ids", "queues", "tasks", "keys", "error_reasons", "workers"), several(names)),
    "tenant": names,
    "scope": scopes,
    "states": several(st.sampled_from(State)),
    "classes": several(st.sampled_from(FailureClass)),
    "fingerprint": st.just("") | texts,
    "text": texts,
    "replay_run": texts,
    "attempts": numbers,
    "created": numbers,
    "finished": numbers,
    "payload": st.lists(payload_conditions(), min_size=1, max_size=2, unique_by=lambda c: c.path),
}


@st.composite
def conditions(draw, name):
    if name in ("attempts", "created", "finished"):
        unit = "" if name == "attempts" else "_us"
        ends = draw(st.sampled_from([("from",), ("to",), ("from", "to")]))
        return {f"{name}_{end}{unit}": draw(numbers) for end in ends}
    value = draw(CONDITIONS[name])
    return {name: tuple(value) if isinstance(value, list) else value}


@st.composite
def filters(draw):
    fields: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=5, unique=True)):
        fields |= draw(conditions(name))
    without = []
    for name in draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=3)):
        one = Filter(**draw(conditions(name)))
        without.append(replace(one, payload=one.payload[:1]))
    return Filter(**fields, without=tuple(dict.fromkeys(without)))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(filters())
def test_a_printed_filter_is_read_as_the_same(wanted):
    wanted.check()
    text = format_filter(wanted)
    assert compile_filter(text, NOW_US) == wanted
    assert compile_filter(text, 0) == wanted


def test_control_a_value_without_quotes_fails_the_round_trip(monkeypatch):
    monkeypatch.setattr("holdfast.model.filter_format._BARE", re.compile(r"(?s).+"))
    with pytest.raises((AssertionError, InvalidInput, ExceptionGroup)):
        test_a_printed_filter_is_read_as_the_same()


def test_every_condition_of_a_filter_has_a_word():
    fields = {word.field for word in WORDS.values()} | {"payload", "without"}
    assert {
        field.removesuffix("_us").removesuffix("_from").removesuffix("_to")
        for field in Filter.__struct_fields__
    } == fields


# --- two filters as one -------------------------------------------------------------------------

JOBS = [
    Job(
        name,
        tenant,
        scope,
        queue,
        "send",
        b'{"n":%d}' % number,
        0,
        3,
        created_at_us=number,
        run_at_us=number,
        seq=number,
        state=state,
        attempt=number % 4,
        worker=worker,
        failure=Failure.of("timeout", "Took 31 s"),
        finished_at_us=number,
        ties=Ties("k"),
        replays=Replays(1, 150, "ann", "why", "run1"),
    )
    for number, (name, tenant, scope, queue, state, worker) in enumerate(
        [
            ("a", "t", "x", "q", State.DEAD, "own/w"),
            ("b", "t", "x/y", "q", State.DEAD, "w"),
            ("c", "u", "xy", "r", State.DEAD, "v"),
            ("d", "t", "x/y/z", "r", State.ARCHIVED, "own/v"),
            ("e", "u", "", "s", State.PENDING, ""),
        ]
    )
]
SMALL = {
    "ids": several(st.sampled_from("abcde")),
    "tenant": st.sampled_from("tu"),
    "scope": st.sampled_from(["x", "x/y", "xy"]),
    "states": several(st.sampled_from(State)),
    "queues": several(st.sampled_from("qrs")),
    "workers": several(st.sampled_from(["w", "own/w", "v"])),
    "text": st.sampled_from(["took", "31", "took 31"]),
    "attempts_from": st.integers(0, 4),
    "created_to_us": st.integers(0, 5),
    "payload": st.sampled_from([(1, 1.0), (2, 2.0), (1, 3)]).map(
        lambda values: (PayloadCondition.of("n", *values),)
    ),
}


@st.composite
def small_filters(draw):
    chosen = draw(st.lists(st.sampled_from(sorted(SMALL)), max_size=4, unique=True))
    without = draw(st.lists(st.sampled_from("abc"), max_size=2, unique=True))
    return Filter(
        **{name: draw(SMALL[name]) for name in chosen},
        without=tuple(Filter(ids=(job_id,)) for job_id in without),
    )


@given(small_filters(), small_filters())
def test_two_filters_as_one_find_what_both_find(one, other):
    if not _fits(one, other):
        return
    both = intersection(one, other)
    for job in JOBS:
        assert both.matches(job) is (one.matches(job) and other.matches(job))


def _fits(one, other):
    a, b = (one.text or "").lower(), (other.text or "").lower()
    return a in b or b in a


def test_two_texts_cannot_be_looked_for():
    with pytest.raises(InvalidInput, match="only one text"):
        intersection(Filter(text="took"), Filter(text="31"))
    assert intersection(Filter(text="Took"), Filter(text="took 31")).text == "took 31"
    assert intersection(EVERYTHING, EVERYTHING) == EVERYTHING
