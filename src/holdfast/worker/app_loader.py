"""Imports an application by name: ``module:attribute`` or ``path/to/file.py:attribute``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from holdfast.model.errors import InvalidInput

from .registry import Registry

_DEFAULT_NAMES = ("app", "holdfast", "application")


def load_registry(reference: str) -> Registry:
    """Import the application that the reference names and return what it declares.

    Without an attribute, use the module's ``app``. Raise ``InvalidInput`` naming the wrong part.
    """
    module_name, _, attribute = reference.partition(":")
    module = _import(module_name)
    for name in [attribute] if attribute else _DEFAULT_NAMES:
        found = getattr(module, name, None)
        registry = getattr(found, "registry", None)
        if isinstance(registry, Registry):
            registry.reference = f"{module_name}:{name}"
            return registry
        if attribute:
            problem = "has no such attribute" if found is None else f"is a {type(found).__name__}"
            raise InvalidInput("app", f"{reference!r} {problem}, not a Holdfast application")
    raise InvalidInput("app", f"{module_name!r} has no 'app': write {module_name}:NAME")


def _import(name: str) -> ModuleType:
    path = Path(name) if name.endswith(".py") else None
    if path is not None and not path.is_file():
        raise InvalidInput("app", f"there is no file {name!r}")
    if path is None and not all(name.split(".")):
        raise InvalidInput("app", f"{name!r} is neither a module nor a .py file")
    try:
        return _import_module(name) if path is None else _import_file(path)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if path is None and missing is not None and f"{name}.".startswith(f"{missing}."):
            raise InvalidInput(
                "app", f"no module is named {name!r} here ({Path.cwd()}) or on the path"
            ) from None
        raise InvalidInput("app", f"{name!r} cannot be imported: {_why(error)}") from error


def _import_module(name: str) -> ModuleType:
    # As `python -m` does: modules in the current directory can be imported.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _why(error: BaseException) -> str:
    """Return what went wrong in the application's code, and where."""
    text = f"{type(error).__name__}: {error}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename != __file__
    ]
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else text
