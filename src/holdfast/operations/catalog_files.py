"""Catalog files: YAML, named by the setting ``catalog``, or ``./catalog.yaml``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.model.catalog import Catalog
from holdfast.model.catalog_document import types_of
from holdfast.model.errors import InvalidInput
from holdfast.settings.files import read_text
from holdfast.settings.yaml_text import parse_yaml

DEFAULT_CATALOG = "./catalog.yaml"
"""Read when the setting ``catalog`` is not set and this file exists."""
MAX_FILES = 1_000
MAX_FILE_BYTES = 1 << 20
_ENDINGS = (".yaml", ".yml")


class CatalogReport(msgspec.Struct, frozen=True):
    """The event types of some files, and everything that is wrong with others."""

    catalog: Catalog
    files: list[str]
    problems: list[InvalidInput]

    def checked(self) -> Catalog:
        """Return the catalog, or raise ``InvalidInput`` for the first problem."""
        for problem in self.problems:
            raise problem
        return self.catalog


def read_catalog(paths: str | None, declared: Catalog | None = None) -> CatalogReport:
    """Read these files and directories, separated by commas; with ``declared`` add to those.

    None: ``DEFAULT_CATALOG``, if it exists.
    """
    catalog = Catalog() if declared is None else declared.joined(Catalog())
    problems: list[InvalidInput] = []
    files: list[Path] = []
    try:
        files = yaml_files("catalog", paths, DEFAULT_CATALOG)
    except InvalidInput as problem:
        problems.append(problem)
    for file in files:
        try:
            found, wrong = types_of(yaml_content("catalog", file), str(file))
        except InvalidInput as problem:
            problems.append(problem)
            continue
        problems += wrong
        for one in found:
            try:
                catalog.add(one)
            except InvalidInput as problem:
                problems.append(InvalidInput(f"{file}: {one.name}", problem.problem))
    return CatalogReport(catalog, [str(file) for file in files], problems)


def yaml_files(field: str, paths: str | None, default: str) -> list[Path]:
    """Return these files, and those of directories; None: the default one, if it exists."""
    if paths is None:
        return [Path(default)] if Path(default).is_file() else []
    found: list[Path] = []
    for part in paths.split(","):
        path = Path(part.strip())
        if path.is_dir():
            found += sorted(one for one in path.iterdir() if one.suffix.lower() in _ENDINGS)
        elif path.suffix.lower() not in _ENDINGS:
            raise InvalidInput(field, f"{path} is not a directory and does not end in .yaml")
        else:
            found.append(path)
    if len(found) > MAX_FILES:
        raise InvalidInput(field, f"{len(found):,} files; the limit is {MAX_FILES:,}")
    return list(dict.fromkeys(found))


def yaml_content(field: str, file: Path) -> object:
    """Return what a file says; raise ``InvalidInput`` if it cannot be read."""
    try:
        return parse_yaml(read_text(file, MAX_FILE_BYTES, ": split it into several files"))
    except (OSError, ValueError) as error:
        raise InvalidInput(field, f"{file} cannot be read: {error}") from None
    except RecursionError:
        raise InvalidInput(field, f"{file} cannot be read: nested too deeply") from None
