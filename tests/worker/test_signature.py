"""A call becomes JSON when it is enqueued, and the same call again when it runs."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Optional, TypedDict, Unpack
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import InvalidInput, PayloadInvalid
from holdfast.worker.signature import Signature

NOON = datetime(2027, 1, 15, 12, 30, 0, 250_000, tzinfo=UTC)
UUID_1 = UUID("01941f29-7c00-7aaa-8bbb-0123456789ab")


@dataclass
class Address:
    street: str
    number: int = 1


class Basket(msgspec.Struct):
    items: list[str]
    address: Address | None = None


class Colour(Enum):
    RED = "red"


@dataclass
class Loose:
    data: dict[str, Any]


class Foreign:
    """A class that JSON knows nothing of."""


def there_and_back(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Call the function with what comes out of the payload of this call."""
    signature = Signature(function, "t")
    given_args, given_kwargs = signature.arguments(signature.encode(args, kwargs))
    return function(*given_args, **given_kwargs)


def echo_of(annotation: object) -> Callable[..., object]:
    def echo(value):
        return value

    echo.__annotations__ = {"value": annotation}
    return echo


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 7),
        (float, 1.5),
        (str, "ünï\n"),
        (bool, True),
        (None, None),
        (bytes, b"\x00\xff"),
        (datetime, NOON),
        (date, NOON.date()),
        (timedelta, timedelta(hours=1, microseconds=5)),
        (UUID, UUID_1),
        (Decimal, Decimal("12.300")),
        (Optional[UUID], UUID_1),  # noqa: UP045 - people write it
        (UUID | None, None),
        (int | str, "x"),
        (list[datetime], [NOON]),
        (dict[str, Decimal], {"a": Decimal("0.1")}),
        (tuple[int, UUID], (1, UUID_1)),
        (set[int], {1, 2}),
        (Literal["a", "b"], "b"),
        (Colour, Colour.RED),
        (Address, Address("Elm", 4)),
        (list[Address], [Address("Elm")]),
        (Basket, Basket(["x"], Address("Elm"))),
        (Any, {"a": [1, None]}),
        (object, "anything"),
        (dict[str, object], {"a": [1, None, {"b": 2.5}]}),
        (Mapping[str, int], {"a": 1}),
    ],
    ids=str,
)
def test_a_value_comes_back_as_its_annotation_says(annotation, value):
    back = there_and_back(echo_of(annotation), value)
    assert back == value
    assert type(back) is type(value)


def test_annotations_that_are_strings_are_read():
    # This module has ``from __future__ import annotations``: all of them are.
    def task(when: datetime, who: UUID, to: Address) -> object:
        return when, who, to

    assert task.__annotations__["when"] == "datetime"
    assert there_and_back(task, NOON, who=UUID_1, to=Address("Elm")) == (
        NOON,
        UUID_1,
        Address("Elm"),
    )


@pytest.mark.parametrize(
    "value",
    [None, True, 7, 2**80, 1.5, "text", [1, ["a"]], {"a": {"b": [None, False]}}, OrderedDict(a=1)],
    ids=repr,
)
@pytest.mark.parametrize("annotation", [None, Any, object, "missing"])
def test_what_json_carries_unchanged_needs_no_annotation(annotation, value):
    if annotation is None:
        value = None
    echo = echo_of(annotation) if annotation != "missing" else lambda value: value
    assert there_and_back(echo, value) == value


CHANGED = [
    (b"bytes", "bytes"),
    (bytearray(b"x"), "a bytearray"),
    ({1, 2}, "a set"),
    (frozenset({1}), "a frozenset"),
    ((1, 2), "a tuple"),
    (NOON, "a datetime"),
    (NOON.date(), "a date"),
    (timedelta(hours=1), "a timedelta"),
    (UUID_1, "a UUID"),
    (Decimal("1.0"), "a Decimal"),
    (Colour.RED, "a Colour"),
    (Address("Elm"), "an Address"),
    (Basket([]), "a Basket"),
]


@pytest.mark.parametrize(("value", "kind"), CHANGED, ids=repr)
def test_what_json_would_change_is_refused_where_there_is_no_type(value, kind):
    def untyped(number: int, thing=None, *rest, **more): ...
    def anything(number: int, thing: Any = None, *rest: Any, **more: object): ...
    def containers(number: int, thing: dict[str, Any] | None = None, *rest: list, **more: dict): ...
    def optional(number: int, thing: Optional[dict] = None): ...  # noqa: UP045

    calls: list[tuple[Callable[..., object], tuple[object, ...], dict[str, object], str]] = [
        (untyped, (1, value), {}, "thing"),
        (untyped, (1, {"a": [value]}), {}, "thing['a'][0]"),
        (untyped, (1, None, value), {}, "rest[0]"),
        (untyped, (1,), {"other": value}, "other"),
        (anything, (1,), {"thing": value}, "thing"),
        (anything, (1, None, 2, [value]), {}, "rest[1][0]"),
        (anything, (1,), {"other": {"b": value}}, "other['b']"),
        (containers, (1, {"b": value}), {}, "thing['b']"),
        (containers, (1, {}, [value]), {}, "rest[0][0]"),
        (containers, (1,), {"other": {"b": value}}, "other['b']"),
        (optional, (1, {"b": value}), {}, "thing['b']"),
    ]
    for function, args, kwargs, place in calls:
        with pytest.raises(PayloadInvalid) as refused:
            Signature(function, "mail.send").encode(args, kwargs)
        assert str(refused.value) == (
            f"payload: mail.send: argument {place} is {kind}, which would come back as something "
            "else: annotate the parameter with its type, or convert the value first"
        )


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (Any, {1: "a"}, "argument value has the key 1, which would come back as other text"),
        (dict, {1: "a"}, "argument value has the key 1, which is not str"),
        (dict[str, int], {1: 2}, "argument value has the key 1, which is not str"),
        (str, b"x", "argument value is bytes, not str"),
        (str | None, b"x", "argument value is bytes, not str"),
        (str, UUID_1, "argument value is a UUID, not str"),
        (list[str], [b"x"], r"argument value\[0\] is bytes, not str"),
        (Address, Address(b"x"), "argument value.street is bytes, not str"),  # type: ignore[arg-type]
        (Address, {"street": b"x"}, r"argument value\['street'\] is bytes, not str"),
        (tuple[int, Any], (1, {2}), r"argument value\[1\] is a set"),
        (Loose, Loose({"a": {1}}), r"argument value.data\['a'\] is a set"),
    ],
    ids=str,
)
def test_what_json_would_change_inside_a_type_is_refused_too(annotation, value, said):
    with pytest.raises(PayloadInvalid, match=said):
        Signature(echo_of(annotation), "t").encode((value,), {})


def test_control_without_the_check_bytes_arrive_as_other_text(monkeypatch):
    monkeypatch.setattr(Signature, "_check_unchanged", lambda self, values: None)
    assert there_and_back(lambda value: value, b"bytes") == "Ynl0ZXM="
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_what_json_would_change_is_refused_where_there_is_no_type(b"bytes", "bytes")


def test_a_value_that_refers_to_itself_is_refused_and_named():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(PayloadInvalid, match="t: argument value is nested too deeply"):
        Signature(echo_of(Any), "t").encode((loop,), {})
    with pytest.raises(PayloadInvalid, match="t: argument value"):
        Signature(echo_of(list[list]), "t").encode((loop,), {})


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (int, Foreign(), "JSON cannot carry a Foreign: use a type that JSON has"),
        (list[int], [1, Foreign()], "JSON cannot carry a Foreign"),
        (str, "\ud800", "surrogates"),
        (float, float("nan"), "NaN and infinities are not JSON"),
        (list[float], [1.0, float("inf")], "NaN and infinities are not JSON"),
    ],
    ids=["foreign", "inside", "surrogate", "nan", "infinity"],
)
def test_the_error_for_what_json_cannot_carry_names_task_and_argument(annotation, value, said):
    def task(first: int, value, last: str = ""): ...

    task.__annotations__["value"] = annotation
    with pytest.raises(PayloadInvalid) as refused:
        Signature(task, "mail.send").encode((1, value, "z"), {})
    assert str(refused.value).startswith("payload: mail.send: argument value: ")
    assert said in str(refused.value)


def test_defaults_are_the_functions_own_and_not_in_the_payload():
    marker = Foreign()

    def task(number: int, marked: Any = marker, when: datetime = NOON) -> object:
        return number, marked, when

    assert Signature(task, "t").encode((1,), {}) == b'{"number":1}'
    assert there_and_back(task, 1) == (1, marker, NOON)
    assert there_and_back(task, 1, None) == (1, None, NOON)


def everything(
    first: UUID, second: int = 2, /, third: int = 3, *rest: Decimal, only: bool = False, **more: Any
) -> object:
    return first, second, third, rest, only, more


CALLS: list[tuple[tuple[object, ...], dict[str, object]]] = [
    ((UUID_1,), {}),
    ((UUID_1, 5), {}),
    ((UUID_1,), {"third": 9}),
    ((UUID_1, 5, 6, Decimal("1.5"), Decimal(2)), {}),
    ((UUID_1, 5, 6, Decimal("1.5")), {"only": True, "a": [1], "b": None}),
    ((UUID_1,), {"only": True, "a": "x"}),
]


@pytest.mark.parametrize(("args", "kwargs"), CALLS, ids=str)
def test_every_kind_of_parameter_arrives_where_it_was_given(args, kwargs):
    assert there_and_back(everything, *args, **kwargs) == everything(*args, **kwargs)


def test_the_rest_of_the_arguments_has_its_type_too():
    def task(name: str, **more: datetime) -> object:
        return name, more

    assert there_and_back(task, "a", at=NOON, to=NOON) == ("a", {"at": NOON, "to": NOON})
    signature = Signature(task, "t")
    for call in (
        lambda: signature.encode(("a",), {"at": 7}),
        lambda: signature.check(b'{"name":"a","at":7}'),
    ):
        with pytest.raises(
            PayloadInvalid, match=r"t: Expected `datetime`, got `int` - at `\$\[\.\.\.\]`"
        ):
            call()


class Extra(TypedDict):
    at: str


def test_names_that_only_a_type_checker_knows_are_untyped():
    def task(**more: Unpack[Extra]) -> object:
        return more

    assert there_and_back(task, at="noon") == {"at": "noon"}


def loose(a, b=2, /, c=3, *rest, d=4, e, **more):
    return a, b, c, rest, d, e, more


def strict(a, b=2, /, c=3, *, d=4, e):
    return a, b, c, d, e


NAMES = st.sampled_from(["c", "d", "e", "f", "rest_of_it", "more_of_it"])
VALUES = st.integers(0, 9) | st.none() | st.text(max_size=3)


@given(
    function=st.sampled_from([loose, strict]),
    args=st.lists(VALUES, max_size=5),
    kwargs=st.dictionaries(NAMES, VALUES, max_size=4),
)
def test_a_call_is_refused_when_it_is_enqueued_exactly_if_the_call_itself_would_fail(
    function, args, kwargs
):
    try:
        expected = function(*args, **kwargs)
    except TypeError:
        with pytest.raises(InvalidInput) as refused:
            Signature(function, "t").encode(tuple(args), kwargs)
        assert refused.value.field == "arguments"
    else:
        assert there_and_back(function, *args, **kwargs) == expected


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3, 4), {"e": 1}, "too many positional arguments"),
        ((1,), {"e": 1, "wrong": 2}, "unexpected keyword argument 'wrong'"),
        ((1,), {}, "missing a required argument: 'e'"),
    ],
)
def test_a_wrong_call_names_the_task_and_what_is_wrong(args, kwargs, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        Signature(strict, "mail.send").encode(args, kwargs)
    assert "mail.send" in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "7"),
        (int, 1.5),
        (int, True),
        (UUID, "not one"),
        (datetime, "yesterday"),
        (Literal["a", "b"], "c"),
        (Address, {"number": 1}),
        (list[int], [1, "2"]),
        (int, None),
    ],
    ids=str,
)
def test_a_value_that_is_not_what_the_annotation_says_is_refused_when_it_is_enqueued(
    annotation, value
):
    with pytest.raises(PayloadInvalid, match=r"^payload: t: .*\$\.value"):
        Signature(echo_of(annotation), "t").encode((value,), {})


@pytest.mark.parametrize("value", [Foreign(), object(), float("nan"), float("inf"), {1j: 2}])
def test_what_json_cannot_carry_is_refused_when_it_is_enqueued(value):
    with pytest.raises(PayloadInvalid):
        Signature(echo_of(Any), "t").encode((value,), {})


@pytest.mark.parametrize("annotation", [float, float | None, str, str | None, Any], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_number_that_json_has_not_is_never_taken_for_nothing(annotation, value):
    signature = Signature(echo_of(annotation), "t")
    with pytest.raises(PayloadInvalid, match="NaN and infinities are not JSON"):
        signature.encode((value,), {})
    with pytest.raises(PayloadInvalid, match="NaN and infinities are not JSON"):
        signature.encode((), {"value": value})


@given(
    annotation=st.sampled_from([str, int, float, bool, bytes, datetime, UUID, Decimal, list, Any]),
    value=st.text() | st.integers() | st.booleans() | st.none() | st.just(NOON) | st.just(UUID_1),
)
def test_a_call_by_place_is_the_same_as_one_by_name(annotation, value):
    signature = Signature(echo_of(annotation), "t")

    def payload(args: tuple[object, ...], kwargs: dict[str, object]) -> bytes | str:
        try:
            return signature.encode(args, kwargs)
        except PayloadInvalid as error:
            return str(error)

    assert payload((value,), {}) == payload((), {"value": value})


@pytest.mark.parametrize(
    "annotation",
    [
        Foreign,
        Foreign | None,
        list[Foreign],
        dict[str, Foreign],
        tuple[int, Foreign],
        Callable[[], int],
        datetime | UUID,
    ],
    ids=str,
)
def test_a_parameter_of_a_class_that_json_cannot_make_is_refused_at_declaration(annotation):
    with pytest.raises(InvalidInput, match="JSON cannot carry a parameter of 'mail'"):
        Signature(echo_of(annotation), "mail")


def test_an_annotation_that_cannot_be_resolved_is_refused_at_declaration():
    with pytest.raises(InvalidInput, match="annotations of 'mail' are unknown: name 'Nowhere'"):
        Signature(echo_of("Nowhere"), "mail")


def test_a_keyword_that_shares_the_name_of_a_positional_only_parameter_is_refused():
    # Python allows it; a payload has one place for each name, so that one would be lost.
    def task(a, /, *rest, **more):
        return a, rest, more

    for name in ("a", "rest"):
        with pytest.raises(InvalidInput, match=f"{name!r}") as refused:
            Signature(task, "t").encode((1, 2), {name: 3})
        assert refused.value.field == "arguments"


def test_a_payload_that_leaves_out_what_comes_before_gets_the_defaults_in_its_place():
    def task(a=1, b=2, /, c=3, *rest):
        return a, b, c, rest

    for payload, expected in [
        (b'{"b":5}', (1, 5, 3, ())),
        (b'{"c":5}', (1, 2, 5, ())),
        (b'{"rest":[5,6]}', (1, 2, 3, (5, 6))),
        (b"{}", (1, 2, 3, ())),
    ]:
        args, kwargs = Signature(task, "t").arguments(payload)
        assert task(*args, **kwargs) == expected


def test_only_known_fields_are_taken_unless_the_function_takes_more():
    closed, open_ended = Signature(strict, "t"), Signature(loose, "t")
    with pytest.raises(PayloadInvalid, match="unknown field `wrong`"):
        closed.check(b'{"a":1,"e":2,"wrong":3}')
    open_ended.check(b'{"a":1,"e":2,"wrong":3}')
    args, kwargs = open_ended.arguments(b'{"a":1,"e":2,"wrong":3}')
    assert loose(*args, **kwargs) == loose(1, e=2, wrong=3)
    assert closed.takes("a")
    assert not closed.takes("wrong")
    assert open_ended.takes("wrong")


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b'{"a":1}', b'"x"', b"\xff", b"[" * 5_000])
def test_a_payload_that_is_not_such_a_call_is_refused(payload):
    with pytest.raises(PayloadInvalid):
        Signature(strict, "t").check(payload)


def test_a_method_a_partial_and_an_object_that_can_be_called_are_functions_too():
    class Mailer:
        def send(self, when: datetime) -> object:
            return when

        def __call__(self, when: datetime) -> object:
            return when

    def send(to: str, when: datetime) -> object:
        return to, when

    assert there_and_back(Mailer().send, NOON) == NOON
    assert there_and_back(Mailer(), NOON) == NOON
    assert there_and_back(functools.partial(send, "ann"), when=NOON) == ("ann", NOON)


def test_a_wrapped_function_is_read_through_its_wrapper():
    def send(when: datetime) -> object:
        return when

    @functools.wraps(send)
    def wrapper(*args: Any, **kwargs: Any) -> object:
        return send(*args, **kwargs)

    assert list(inspect.signature(wrapper).parameters) == ["when"]
    assert there_and_back(wrapper, NOON) == NOON
