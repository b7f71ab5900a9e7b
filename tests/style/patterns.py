"""Every regular expression in ``src``, and hostile texts for each: ``python patterns.py MODULE…``.

A regular expression holds the interpreter's lock, and Python's engine can take time in proportion
to the square of a text or worse. The texts are made from the pattern itself: what it repeats, and
what precedes that, over and over, with an end that does not match.
"""

import ast
import importlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sre: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")
compiler: Any = importlib.import_module("re._compiler")

SOURCES = Path(__file__).parent.parent.parent / "src" / "holdfast"
METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
SIZE = 1 << 20
SCREEN_SIZE = 8 * 1024
SCREEN_SECONDS = 0.1
"""Of processor time: what is linear takes less than a millisecond for a text of the first size."""
MOST_SLOWEST = 3
"""How many of the texts are tried at full length: those that took longest at the first size."""

OF_OTHERS = {"bounded_pattern.py"}
"""It compiles patterns of catalogs: tests/model/test_bounded_pattern.py bounds those."""
DYNAMIC = {
    "model.fingerprint": lambda module: [
        (module._varying(url=url, email=email), "sub")
        for url in (False, True)
        for email in (False, True)
    ],
    "model.redaction": lambda module: [
        (module._pattern(module._NAME), "search"),
        (module._pattern(module._HEADER), "sub"),
        (module._pattern(module._ASSIGNED), "sub"),
    ],
    "engines.postgres.errors": lambda module: [
        (re.compile(pattern), "search") for pattern in module._UNREACHABLE
    ],
}
"""By module: the patterns that are made when a function is called."""

GENERIC = ("a", "0", " ", "\n", "_", "-", ".", ":", "@", "/", "'", '"', "\\", "=", "a ", "a.", "0:")
ENDS = ("", "\0", "\n")
PREFERRED = ("a0 -", "0a_.", " .\n:", ":/@=")


_USES_RE = re.compile(r"^(?:import re|from re )\b", re.MULTILINE)


class FoundPattern(NamedTuple):
    """A pattern, and how it is used."""

    pattern: re.Pattern[str]
    method: str


def module_names() -> list[str]:
    """Return the modules that use regular expressions."""
    return [
        ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        for path in sorted(SOURCES.rglob("*.py"))
        if "testing" not in path.parts and _USES_RE.search(path.read_text())
        if path.name not in OF_OTHERS
    ]


def patterns_of(name: str) -> list[FoundPattern]:
    """Return the patterns of a module; raise ``LookupError`` for one that cannot be told."""
    module = importlib.import_module(f"holdfast.{name}")
    tree = ast.parse((SOURCES / Path(*name.split("."))).with_suffix(".py").read_text())
    made = DYNAMIC[name](module) if name in DYNAMIC else []
    found = [FoundPattern(*one) for one in made]
    for node in ast.walk(tree):
        # Also where it is only mentioned, as in partial(re.compile).
        if not (isinstance(node, ast.Attribute) and _is_re(node.value)):
            continue
        if node.attr not in ("compile", *METHODS):
            continue
        call = next(
            (one for one in ast.walk(tree) if isinstance(one, ast.Call) and one.func is node), None
        )
        try:
            found += _of_call(call, node.attr, tree, vars(module))
        except NameError:
            if name not in DYNAMIC:
                place = f"{name}, line {node.lineno}"
                raise LookupError(f"{place}: name its patterns in DYNAMIC of {__file__}") from None
    return found


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


def _of_call(
    call: ast.Call | None, method: str, tree: ast.Module, names: dict[str, object]
) -> list[FoundPattern]:
    if call is None:
        raise NameError("not a call")

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "pattern", "eval"), names)  # noqa: S307

    flags = [value(one) for one in call.args[1:]] if method == "compile" else []
    flags += [value(one.value) for one in call.keywords if one.arg == "flags"]
    pattern = re.compile(value(call.args[0]), *flags)
    if method != "compile":
        return [FoundPattern(pattern, method)]
    targets = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in targets
        and node.attr in METHODS
    }
    return [FoundPattern(pattern, one) for one in sorted(used) or ["search"]]


# --- hostile texts ---------------------------------------------------------------------------


def texts_of(pattern: re.Pattern[str]) -> list[tuple[str, str, str]]:
    """Return what the texts begin with, repeat, and end with."""
    shapes: dict[tuple[str, str], None] = {("", unit): None for unit in GENERIC}
    tree = parser.parse(pattern.pattern, pattern.flags)
    for preferred in PREFERRED:
        for before, unit in _units(tree, "", preferred):
            if unit:
                shapes[before, unit] = None
                shapes["", before + unit] = None
                shapes["", before + unit * 3] = None
        shapes["", _sample(tree, preferred) or "a"] = None
    return [(before, unit, end) for before, unit in shapes for end in ENDS]


def _units(tree: Any, before: str, preferred: str) -> Iterator[tuple[str, str]]:
    """Yield each thing that is repeated, with what precedes it."""
    for operator, argument in tree:
        item = [(operator, argument)]
        for inner in _inner(operator, argument):
            yield from _units(inner, before, preferred)
        if operator in _REPEATS:
            yield before, _sample(argument[2], preferred)
        before += _sample(item, preferred)
        yield "", before


_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def _inner(operator: object, argument: Any) -> list[Any]:
    if operator in _REPEATS:
        return [argument[2]]
    if operator is sre.SUBPATTERN:
        return [argument[3]]
    if operator is sre.BRANCH:
        return list(argument[1])
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return [argument[1]]
    return [argument] if operator is sre.ATOMIC_GROUP else []


def _sample(tree: Any, preferred: str) -> str:
    """Return a text that this part matches, of the preferred characters if it can be."""
    out = ""
    for operator, argument in tree:
        if operator is sre.LITERAL:
            out += chr(argument)
        elif operator in (sre.NOT_LITERAL, sre.ANY, sre.IN):
            out += _character(operator, argument, preferred)
        elif operator in _REPEATS:
            out += _sample(argument[2], preferred) * max(1, argument[0])
        elif operator in (sre.SUBPATTERN, sre.ATOMIC_GROUP, sre.BRANCH):
            out += _sample(_inner(operator, argument)[0], preferred)
    return out


def _character(operator: object, argument: Any, preferred: str) -> str:
    state = parser.State()
    state.str = ""
    one = compiler.compile(parser.SubPattern(state, [(operator, argument)]))
    every = preferred + "a0 Z_-.:/@='\"\\\n" + "".join(map(chr, range(33, 127)))
    return next((char for char in every if one.match(char)), "a")


# --- tries -----------------------------------------------------------------------------------


def seconds_of(found: FoundPattern, text: str) -> float:
    """Return the processor time that it takes."""
    call = getattr(found.pattern, found.method)
    began = time.process_time()
    if found.method in ("sub", "subn"):
        call("", text)
    elif found.method == "finditer":
        for _match in call(text):
            pass
    else:
        call(text)
    return time.process_time() - began


def too_slow(found: FoundPattern) -> str | None:
    """Return the text that takes too long; None if none does. At full length it may never end."""
    times = []
    for before, unit, end in texts_of(found.pattern):
        text = before + unit * (SCREEN_SIZE // len(unit)) + end
        seconds = seconds_of(found, text)
        # Twice: a virtual machine charges a process now and then for what others did.
        if seconds > SCREEN_SECONDS and seconds_of(found, text) > SCREEN_SECONDS:
            return f"{before!r} + {unit!r} * {SCREEN_SIZE // len(unit):,} + {end!r}"
        times.append((seconds, (before, unit, end)))
    times.sort(reverse=True)
    for _seconds, (before, unit, end) in times[:MOST_SLOWEST]:
        seconds_of(found, before + unit * (SIZE // len(unit)) + end)
    return None


def main() -> None:
    """Try the patterns of these modules; print those that are too slow, then done."""
    for name in sys.argv[1:]:
        for found in patterns_of(name):
            sys.stderr.write(f"trying {found}\n")
            if (text := too_slow(found)) is not None:
                used = f"{found.pattern.pattern!r} ({found.method})"
                sys.stdout.write(f"{name}: {used} is slow for {text}\n")
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
