"""The reference of the Python API is complete, and docstrings say what each argument means."""

import enum
import inspect
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.model.errors import HoldfastError

from .pages import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import python_api

TEXT = (ROOT / "docs" / "reference" / "python-api.md").read_text("utf-8")
CLASSES = [
    one for section in python_api.SECTIONS for one in section.objects if isinstance(one, type)
]
METHODS = [
    (kind, name, function) for kind in CLASSES for name, function in python_api.public_methods(kind)
]


def parameters_of(function: object) -> list[str]:
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
    names = [one.name for one in found if one.kind not in variadic and one.name != "kwargs"]
    return [name for name in names if name not in ("self", "function")]


def part(text: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one."""
    found = text.split(f"# {heading}\n")
    return found[1].partition("\n#")[0] if len(found) == 2 else ""


def missing(text: str) -> list[str]:
    """Return what the page lacks: names, methods, fields, parameters, errors."""
    lacking = []
    for name in holdfast.__all__:
        one = getattr(holdfast, name)
        is_error = isinstance(one, type) and issubclass(one, HoldfastError)
        there = f"- `{name}`: " if is_error else f"### {name}\n"
        if there not in text:
            lacking.append(name)
        for attribute in python_api.error_attributes(one) if is_error else []:
            line = next((line for line in text.splitlines() if line.startswith(there)), "")
            if f"`{attribute}`" not in line:
                lacking.append(f"{name}.{attribute}")
    for kind in CLASSES:
        below = part(text, kind.__name__)
        fields = python_api.public_fields(kind)
        if issubclass(kind, enum.Enum):
            fields = [f"{kind.__name__}.{member.name}" for member in kind]
        lacking += [f"{kind.__name__}: {one}" for one in fields if f"- `{one}" not in below]
        for parameter in constructor_parameters(kind):
            if f"{parameter}: " not in below:
                lacking.append(f"{kind.__name__}({parameter})")
    for kind, name, function in METHODS:
        heading = f"{kind.__name__}.{name}"
        below = part(text, heading)
        lacking += [heading] if not below.strip() else []
        lacking += [
            f"{heading}({one})" for one in parameters_of(function) if f"{one}: " not in below
        ]
    return lacking


def constructor_parameters(kind: type) -> list[str]:
    made = (holdfast.Holdfast, holdfast.Classifier, holdfast.Rule, holdfast.Verdict)
    if kind in made or issubclass(kind, Exception):
        return [name for name in inspect.signature(kind).parameters if name != "self"]
    return []


def test_every_public_name_method_field_and_parameter_is_there():
    assert missing(TEXT) == []
    assert len(METHODS) >= 35


@pytest.mark.parametrize(
    ("removed", "found"),
    [
        ("#### Task.options\n", "Task.options"),
        ("    max_processing: Duration | None = None,\n", "Holdfast.task(max_processing)"),
        ("    missed: Missed", "Holdfast.cron(missed)"),
        ("- `NoResult`", "NoResult"),
        ("- `deadline_seconds: ", "Attempt: deadline_seconds"),
        ("### Verdict\n", "Verdict"),
        ("classifier: Classifier | None = None", "Holdfast(classifier)"),
        ("    jitter: float | None = None,\n", "Retry(jitter)"),
        ("`error_reason`.", "JobFailed.error_reason"),
    ],
)
def test_control_what_is_removed_is_missed(removed, found):
    assert removed in TEXT
    assert found in missing(TEXT.replace(removed, ""))


@pytest.mark.parametrize(
    ("kind", "name", "function"), METHODS, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_docstring_says_what_every_argument_means(kind, name, function):
    text = inspect.getdoc(function) or ""
    assert text, f"{kind.__name__}.{name}"
    if text.startswith("Do what ``"):
        text = inspect.getdoc(getattr(kind, name.removesuffix("_sync"))) or ""
    for parameter in parameters_of(function):
        told = f"``{parameter}" in text
        assert told or f"{kind.__name__}.{name}" in OBVIOUS, f"{kind.__name__}.{name}: {parameter}"


OBVIOUS = {"Retry.policy"}
"""For the worker: the docstring names its argument without marks."""


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_docstring_says_what_every_argument_of_a_class_means(kind):
    fields = python_api._field_docstrings(kind)
    for parameter in constructor_parameters(kind):
        said = f"``{parameter}" in (kind.__doc__ or "") or fields.get(parameter)
        assert said or parameter == "message", parameter


def test_every_field_is_explained():
    for kind in CLASSES:
        if not issubclass(kind, enum.Enum):
            unexplained = [name for name, text in python_api._field_rows(kind) if not text]
            assert unexplained == [], kind.__name__


def test_the_page_is_linked():
    for page in ("README.md", "docs/README.md"):
        assert "reference/python-api.md" in (ROOT / page).read_text("utf-8")
    assert Path(python_api.__file__).parent == ROOT / "scripts"
