"""Types that an application brings along: pydantic models, and those that JSON cannot carry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Generic, Optional, TypedDict, TypeVar

import msgspec
import pydantic
import pydantic.v1
import pytest

from holdfast.model.errors import InvalidInput, PayloadInvalid
from holdfast.worker.signature import Signature

from .test_signature import echo_of, there_and_back

NOON = datetime(2027, 1, 15, 12, 30, tzinfo=UTC)
T = TypeVar("T")


class Line(pydantic.BaseModel):
    product: str
    count: int = pydantic.Field(default=1, gt=0)


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    number: int = pydantic.Field(alias="no")
    at: datetime
    price: Decimal
    lines: list[Line] = []

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.lines)


class Box(pydantic.BaseModel, Generic[T]):
    inside: T


class Names(pydantic.RootModel[list[str]]):
    pass


@dataclass
class Parcel:
    order: Order
    more: list[Line]


class Shelf(msgspec.Struct):
    line: Line | None = None


class Typed(TypedDict):
    line: Line


ORDER = Order(no=7, at=NOON, price=Decimal("1.50"), lines=[Line(product="tea")])
LINE = Line(product="tea", count=3)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Order, ORDER),
        (list[Order], [ORDER, ORDER]),
        (dict[str, Line], {"a": LINE}),
        (Optional[Line], LINE),  # noqa: UP045 - people write it
        (Line | None, None),
        (tuple[int, Line], (1, LINE)),
        (Parcel, Parcel(ORDER, [LINE])),
        (list[Parcel], [Parcel(ORDER, [])]),
        (Shelf, Shelf(LINE)),
        (Shelf, Shelf()),
        (Typed, {"line": LINE}),
        (Box[datetime], Box[datetime](inside=NOON)),
        (Names, Names(["a"])),
    ],
    ids=str,
)
def test_a_pydantic_model_comes_back_as_it_was(annotation, value):
    back = there_and_back(echo_of(annotation), value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(Order, ORDER), (list[Line], [LINE]), (Parcel, Parcel(ORDER, [LINE])), (Line | None, LINE)],
    ids=str,
)
def test_a_pydantic_model_as_a_result_comes_back_as_it_was(annotation, value):
    def task() -> Any: ...

    task.__annotations__["return"] = annotation
    from holdfast.worker.verdicts import encode_result  # noqa: PLC0415

    assert Signature(task, "t").result(encode_result(value)) == value


def test_a_model_parameter_may_have_a_default():
    def task(line: Line | None = None, other: Line = LINE) -> object:
        return line, other

    assert there_and_back(task) == (None, LINE)
    assert there_and_back(task, LINE, Line(product="x")) == (LINE, Line(product="x"))


def test_a_payload_that_a_model_refuses_is_refused_and_says_which_field():
    signature = Signature(echo_of(list[Line]), "shop.pack")
    with pytest.raises(PayloadInvalid) as refused:
        signature.encode(([{"product": "tea", "count": 0}],), {})
    assert str(refused.value) == (
        "payload: shop.pack: count: Input should be greater than 0 - at `$.value[0]`"
    )
    with pytest.raises(PayloadInvalid, match="product: Field required"):
        signature.check(b'{"value":[{}]}')


def test_a_model_may_be_given_as_the_dict_that_it_validates():
    assert there_and_back(echo_of(Line), {"product": "tea"}) == Line(product="tea")


@pytest.mark.parametrize("annotation", [Any, object, dict, "missing"])
def test_a_model_in_an_untyped_parameter_is_refused(annotation):
    echo = echo_of(annotation) if annotation != "missing" else lambda value: value
    value: object = {"a": LINE} if annotation is dict else LINE
    with pytest.raises(PayloadInvalid, match=r"t: argument value.* is a Line, which would come"):
        Signature(echo, "t").encode((value,), {})


class Old(pydantic.v1.BaseModel):
    a: int


class Foreign:
    pass


@dataclass
class Holder:
    inside: list[Foreign]


@dataclass
class Node:
    value: int
    next: Node | None = None


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Foreign, "'value' is tests.worker.test_value_types.Foreign: use a type that JSON has, a "),
        (dict[str, list[Foreign]], "'value' is tests.worker.test_value_types.Foreign: use"),
        (Holder, "'value'.inside is tests.worker.test_value_types.Foreign: use a type"),
        (Old, "'value' is tests.worker.test_value_types.Old, and only models of pydantic 2"),
        (Line | int, "'value': Type unions containing a custom type"),
        (complex, "'value' is complex: use a type"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_carried_is_refused_at_declaration_and_says_what_to_use(
    annotation, said
):
    with pytest.raises(InvalidInput) as refused:
        Signature(echo_of(annotation), "mail")
    problem = refused.value.problem
    assert problem.startswith("JSON cannot carry a parameter of 'mail': ")
    assert said in problem


def test_an_array_of_numpys_shape_is_refused_at_declaration():
    array = type("ndarray", (), {"__module__": "numpy"})
    with pytest.raises(InvalidInput, match=r"'value' is numpy\.ndarray: use a type that JSON has"):
        Signature(echo_of(array), "t")


def test_the_rest_of_the_arguments_is_checked_as_well():
    def task(**more: Foreign) -> None: ...
    def star(*rest: Foreign) -> None: ...

    functions: list[Callable[..., None]] = [task, star]
    for function in functions:
        with pytest.raises(InvalidInput, match=r"test_value_types\.Foreign"):
            Signature(function, "t")


def test_a_type_that_refers_to_itself_is_supported():
    assert there_and_back(echo_of(Node), Node(1, Node(2))) == Node(1, Node(2))


def test_pydantic_is_not_imported_for_it():
    code = """
import sys
from holdfast import Holdfast
app = Holdfast("memory:")

@app.task
def work(number: int, anything=None) -> dict: ...

work.enqueue_sync(1, {"a": 1})
assert "pydantic" not in sys.modules
app.close_sync()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
