"""The reference of the Python API, from signatures and docstrings: a page of ``reference.py``."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import NamedTuple, get_args, get_overloads

import msgspec

import holdfast
from holdfast.engines.contract import OnDuplicate
from holdfast.model.errors import HoldfastError
from holdfast.testing.app import Rehearsal
from holdfast.worker.schedules import Missed, Overlap

INTRODUCTION = """# Python API

Everything here is imported from `holdfast`; `dir(holdfast)` lists it. Tests use `app.testing()`.
What the words mean is in [concepts](../concepts.md), how to use them in the
[tutorial](../tutorial.md), and testing in [its own page](../testing.md).

Types that occur often:

- `Duration`: seconds as a number, a `timedelta`, or text such as `"500ms"`, `"90s"` and `"1h30m"`.
- `OnDuplicate`: {on_duplicate}. What to do with a job whose id exists: refuse the whole call with
  `DuplicateId`, or leave that job out.
- `Arguments`: positional arguments as a tuple or a list, or named ones as a mapping.
- `Missed`: {missed}. `Overlap`: {overlap}. See [`Holdfast.cron`](#holdfastcron).
- `P` and `R`: the parameters of a task's function, and what it returns; for a coroutine function
  what awaiting it returns. A type checker knows both: `await resize.enqueue("a.png")` is checked
  like a call, and its handle is a `JobHandle` of what `resize` returns. Use `resize.call("a.png")`
  for the same check of each call in `enqueue_many`; a plain tuple is checked only when it is
  enqueued.

Methods whose names end in `_sync` are for code without an event loop.
"""


class Section(NamedTuple):
    """A heading of the page and what it describes."""

    title: str
    introduction: str
    objects: tuple[object, ...]


SECTIONS: tuple[Section, ...] = (
    Section("Declaring and running", "", (holdfast.Holdfast,)),
    Section("Enqueueing", "", (holdfast.Task, holdfast.Call)),
    Section(
        "Jobs",
        "Times are whole microseconds since the epoch.",
        (holdfast.JobHandle, holdfast.Job, holdfast.State),
    ),
    Section(
        "Events",
        "Declared with `@app.event`, appended with `app.append`: see [events](../events.md).",
        (holdfast.EventHandle, holdfast.Actor, holdfast.rule),
    ),
    Section("Inside a task", "", (holdfast.current, holdfast.Attempt)),
    Section(
        "What a task may raise or return",
        "Each is an exception, so that it can be raised at any depth; returning it means the same.",
        (
            holdfast.Retry,
            holdfast.Snooze,
            holdfast.Dead,
            holdfast.Cancel,
            holdfast.BatchError,
        ),
    ),
    Section(
        "What failures mean",
        "[Concepts](../concepts.md#failures) lists the libraries that the default rules know, and "
        "[errors](errors.md#reasons-of-failures) all reasons.",
        (holdfast.Classifier, holdfast.Rule, holdfast.Verdict, holdfast.FailureClass),
    ),
    Section("Testing", "`with app.testing() as rehearsal:` gives a `Rehearsal`.", (Rehearsal,)),
)

JOB_FIELDS: Mapping[str, str] = {
    "id": "The id, unique within the tenant.",
    "tenant": "Who owns it.",
    "scope": "A path inside the tenant; may be empty.",
    "queue": "The queue that it waits in.",
    "task": "The name of its task.",
    "payload": "The arguments, a JSON object; `arguments()` decodes it.",
    "priority": "Higher is sooner.",
    "max_attempts": "How many runs it may have.",
    "created_at_us": "When it was enqueued.",
    "run_at_us": "When it is due.",
    "seq": "Its place among those that are due at the same time.",
    "state": "See `State`.",
    "attempt": "How many runs were charged.",
    "expires_at_us": "When it dies if no worker has started it.",
    "unique": "Its unique key.",
    "estimated_seconds": "How long its first lease lasts.",
    "max_processing_seconds": "How long it may be held in all.",
    "version": "Counts changes.",
    "token": "The token of its last lease.",
    "worker": "Who holds it.",
    "claimed_at_us": "When its last attempt was claimed.",
    "lease_until_us": "When its lease ends.",
    "losses": "How many leases were lost.",
    "failure": "The last failure: `error_reason`, `failure_class`, `message`, `traceback`.",
    "finished_at_us": "When it finished.",
    "result": "What the task returned, as JSON.",
    "attempts_before_replay": "How many runs it had when it was replayed last.",
    "ties": "What it waits for: `key`, `depends_on`, `waiting_for`, `hold`.",
    "replays": "How often it was replayed, and by whom and why the last time.",
    "cancel_reason": "Why it was cancelled.",
}
"""What the fields of a job mean that have no docstring of their own. Times are microseconds."""


def python_api_page() -> str:
    """Return the page."""
    parts = [
        INTRODUCTION.format(
            on_duplicate=_words(OnDuplicate), missed=_words(Missed), overlap=_words(Overlap)
        )
    ]
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n")
        if section.introduction:
            parts.append(f"\n{section.introduction}\n")
        parts += [_object_text(one) for one in section.objects]
    parts.append("\n## Errors\n\nAll of them, with codes: [errors](errors.md).\n\n")
    for name in holdfast.__all__:
        kind = getattr(holdfast, name)
        if isinstance(kind, type) and issubclass(kind, HoldfastError):
            parts.append(_error_text(kind))
    return "".join(parts)


def _words(literal: object) -> str:
    return ", ".join(f'`"{word}"`' for word in get_args(literal))


def _object_text(one: object) -> str:
    name = _name(one)
    if isinstance(one, type) and issubclass(one, enum.Enum):
        meanings = _field_docstrings(one)
        lines = [f"- `{name}.{member.name}`: {meanings.get(member.name, '')}" for member in one]
        values = "\n".join(lines)
        return f"\n### {name}\n\n{_markdown(one)}\n\n{values}\n"
    if not isinstance(one, type):
        return f"\n### {name}\n\n{_signature(name, one)}\n{_markdown(one)}\n"
    text = f"\n### {name}\n\n"
    if one in (holdfast.Rule, holdfast.Verdict):
        text += f"{_struct_signature(one)}\n"
    elif one in (holdfast.Holdfast, holdfast.Classifier) or issubclass(one, Exception):
        text += f"{_signature(name, vars(one)['__init__'], of_class=True)}\n"
    text += f"{_markdown(one)}\n"
    if rows := list(_field_rows(one)):
        text += "\n" + "".join(f"- `{field}`: {meaning}\n" for field, meaning in rows)
    for member, function in public_methods(one):
        text += f"\n#### {name}.{member}\n\n{_signature(f'{name}.{member}', function)}\n"
        text += f"{_markdown(function)}\n"
    return text


def _error_text(kind: type[HoldfastError]) -> str:
    attributes = ", ".join(f"`{name}`" for name in error_attributes(kind))
    has = f" Attributes: {attributes}." if attributes else ""
    return f"- `{kind.__name__}`: {_markdown(kind)}{has}\n"


def error_attributes(kind: type[HoldfastError]) -> list[str]:
    """Return what an error has besides its text, its bases' attributes included."""
    found: list[str] = []
    for base in reversed(kind.__mro__):
        if issubclass(base, HoldfastError) and "__init__" in vars(base):
            source = textwrap.dedent(inspect.getsource(vars(base)["__init__"]))
            found += re.findall(r"^\s+self\.([a-z]\w*) =", source, re.MULTILINE)
    return list(dict.fromkeys(found))


def public_methods(kind: type) -> Iterator[tuple[str, object]]:
    """Return the methods of a class that users call, in the order of its source."""
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            called = inspect.isfunction(member) and base.__module__.startswith("holdfast.")
            if called and (not name.startswith("_") or name == "__call__"):
                yield name, member


def public_fields(kind: type) -> list[str]:
    """Return the attributes of a class that users read: fields and properties."""
    annotated = [name for base in reversed(kind.__mro__) for name in _annotations(base)]
    properties = [name for name, one in vars(kind).items() if isinstance(one, property)]
    found = dict.fromkeys([*annotated, *properties])
    return [name for name in found if not name.startswith("_")]


def _annotations(kind: type) -> Mapping[str, object]:
    if not kind.__module__.startswith("holdfast."):
        return {}
    found: Mapping[str, object] = vars(kind).get("__annotations__", {})
    return found


def _field_rows(kind: type) -> Iterator[tuple[str, str]]:
    meanings = _field_docstrings(kind)
    for name in public_fields(kind):
        member = vars(kind).get(name)
        if isinstance(member, property):
            assert member.fget is not None
            annotation, meaning = member.fget.__annotations__["return"], _markdown(member)
        else:
            annotation = _annotations(kind).get(name, "")
            fallback = JOB_FIELDS.get(name, "") if kind is holdfast.Job else ""
            meaning = meanings.get(name) or fallback
        yield f"{name}: {_plain(str(annotation))}", meaning


def _field_docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field or member of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(text, ast.Expr) or not isinstance(text.value, ast.Constant):
            continue
        targets = field.targets if isinstance(field, ast.Assign) else []
        if isinstance(field, ast.AnnAssign):
            targets = [field.target]
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = _text(str(text.value.value))
    return found


def _signature(name: str, function: object, *, of_class: bool = False) -> str:
    assert callable(function)
    overloads = get_overloads(function)
    found = inspect.signature(overloads[-1] if overloads else function)
    given = [one for one in found.parameters.values() if one.name != "self"]
    parameters, kinds = list(map(_parameter, given)), [one.kind for one in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = found.return_annotation
    arrow = "" if of_class or returned is inspect.Signature.empty else f" -> {returned}"
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    if "AsyncIterator" in arrow:
        prefix, arrow = "async with ", ""
    return _code_block(f"{prefix}{name}", parameters, arrow)


def _struct_signature(kind: type[msgspec.Struct]) -> str:
    """Return how a struct is made, with its annotations as in the source."""
    annotations = _annotations(kind)
    fields = [
        f"{field.name}: {annotations[field.name]}"
        + ("" if field.required else f" = {field.default!r}")
        for field in msgspec.structs.fields(kind)
    ]
    return _code_block(kind.__name__, fields, "")


def _code_block(name: str, parameters: list[str], arrow: str) -> str:
    line = f"{name}({', '.join(parameters)}){arrow}"
    if len(line) > 96:
        inside = "".join(f"    {one},\n" for one in parameters)
        line = f"{name}(\n{inside}){arrow}"
    return f"```python\n{_plain(line)}\n```\n"


def _plain(annotation: str) -> str:
    """Return an annotation without what only the source needs."""
    return re.sub(r"\bR_co\b", "R", re.sub(r"\bWhole\b", "int", annotation))


def _parameter(one: inspect.Parameter) -> str:
    """Return a parameter as in the source: annotations are text there."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(one.kind.name, "")
    annotation = "" if one.annotation is one.empty else f": {one.annotation}"
    default = "" if one.default is one.empty else f" = {one.default!r}".replace("'", '"')
    return f"{stars}{one.name}{annotation}{default}"


def _name(one: object) -> str:
    return str(getattr(one, "__name__", one))


def _markdown(one: object) -> str:
    return _text(inspect.getdoc(one) or "")


def _text(docstring: str) -> str:
    text = inspect.cleandoc(docstring).replace("``", "`")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)
