"""An event type as it is declared: schemas, upcasters, rules, and what it says to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import msgspec

from .errors import EventInvalid, InvalidInput
from .event import Event, NewEvent
from .event_rules import EventRule
from .event_schema import CHANGE_FIELDS, EventSchema, fields_of, value_at
from .event_text import TextTemplate
from .job import NAME_LIMIT, check_name
from .upcasting import Upcaster

Change = Literal["optional", "before", "after", "before_and_after", "diff", "any"]
"""What an event of a type must say about the change: ``any`` is before, after or diff."""
MAX_VERSION = 1_000_000

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "before": ("before",),
    "after": ("after",),
    "before_and_after": ("before", "after"),
    "diff": ("diff",),
}
TEXT_ROOTS = (
    "actor",
    "actor_id",
    "actor_type",
    "entity",
    "entity_id",
    "entity_type",
    "event_type",
    "reason",
    "scope",
    "tenant",
)
"""What a text for people may name beside the fields of the data."""


class Coalesce(msgspec.Struct, frozen=True):
    """Which events are one: of one type, actor and entity, with the same fields, in a window."""

    window_seconds: float
    by: tuple[str, ...] = ()


class EventType:
    """One declared event type. Upcasters may be added until it is used."""

    def __init__(
        self,
        name: str,
        schema: EventSchema,
        *,
        entity: str,
        version: int = 1,
        description: str = "",
        entity_id: str | None = None,
        key: str | None = None,
        text: str | None = None,
        change: Change = "optional",
        sensitive: tuple[str, ...] = (),
        retention_seconds: float | None = None,
        coalesce: Coalesce | None = None,
        rules: tuple[EventRule, ...] = (),
        source: str = "",
    ) -> None:
        """``entity_id`` is the field with the entity's id: by default ``<entity>_id``, if it is
        there. ``retention_seconds`` None: for ever. Raise ``InvalidInput`` naming what is wrong.
        """
        self.name = check_name("event_type", name)
        self.schema = schema
        self.entity = check_name("entity", entity)
        if type(version) is not int or not 1 <= version <= MAX_VERSION:
            raise InvalidInput("version", f"{version!r} is not a whole number from 1 up")
        self.version = version
        self.description = description
        default_id = f"{entity}_id"
        self.entity_id = entity_id or (
            default_id if schema.has(default_id) and not schema.is_open else None
        )
        self.key = None if key is None else TextTemplate(key, "key")
        self.text = None if text is None else TextTemplate(text, "text")
        self.change = change
        self.sensitive = sensitive
        self.retention_seconds = retention_seconds
        self.coalesce = coalesce
        self.rules = rules
        self.source = source
        self.schemas: dict[int, EventSchema] = {version: schema}
        self.upcasters: dict[int, Upcaster] = {}
        for problem in self._problems():
            raise InvalidInput(problem[0], f"{name}: {problem[1]}")

    def add_upcaster(
        self, from_version: int, upcaster: Upcaster, schema: EventSchema | None = None
    ) -> None:
        """Add what makes the data of a version that of the next one."""
        if type(from_version) is not int or not 1 <= from_version < self.version:
            raise InvalidInput(
                "from_version",
                f"{self.name} is at version {self.version}: {from_version!r} is not below it",
            )
        if from_version in self.upcasters:
            problem = f"{self.name} has two upcasters from version {from_version}"
            raise InvalidInput("from_version", problem)
        self.upcasters[from_version] = upcaster
        if schema is not None:
            self.schemas[from_version] = schema

    def missing_upcasters(self) -> list[int]:
        """Return the versions below the current one that cannot be read."""
        return [one for one in range(1, self.version) if one not in self.upcasters]

    def check(self, new: NewEvent) -> NewEvent:
        """Return the event with its entity and key, or raise ``EventInvalid``."""
        payload = self._fields(new)
        data = data_of(payload, new)
        if new.version != self.version:
            self.schema_of(new.version)
            if (old := self.schemas.get(new.version)) is not None:
                old.check_names(payload)
                old.decode(_encoded(self._of_schema(old, data)))
            data = self.upcast(new.version, data)
        self.check_rules(self.value_of(data), data)
        return self.complete(new, data)

    def schema_of(self, version: int) -> EventSchema | None:
        """Return the schema of a version, if it has one; raise ``EventInvalid`` if unknown."""
        known = [one for one in range(1, self.version + 1) if self._reads(one)]
        if type(version) is not int or version not in known:
            raise EventInvalid(
                self.name,
                "version",
                f"version {version!r} is not known here; "
                f"known: {', '.join(str(one) for one in known)}",
            )
        return self.schemas.get(version)

    def value_of(self, data: Mapping[str, object]) -> object:
        """Return the data of the current version as an object, or raise ``EventInvalid``."""
        self.schema.check_names(data)
        return self.schema.decode(_encoded(self._of_schema(self.schema, data)))

    def check_rules(self, value: object, data: Mapping[str, object]) -> None:
        """Raise ``EventInvalid`` if a rule is broken."""
        for rule in self.rules:
            try:
                rule.check(value, data)
            except EventInvalid:
                raise
            except InvalidInput as error:
                raise EventInvalid(self.name, error.field, error.problem) from None

    def upcast(self, version: int, data: Mapping[str, object]) -> dict[str, object]:
        """Return the data of a version as that of the current one."""
        found = dict(data)
        for number in range(version, self.version):
            if number not in self.upcasters:
                self.schema_of(version)
                break
            try:
                found = dict(self.upcasters[number](found))
            except InvalidInput:
                raise
            except Exception as error:
                problem = f"the upcaster from version {number} failed: {error!r}"
                raise EventInvalid(self.name, "version", problem) from error
        return found

    def _reads(self, version: int) -> bool:
        return all(one in self.upcasters for one in range(version, self.version))

    def _fields(self, new: NewEvent) -> dict[str, object]:
        try:
            raw = new.payload
            data = fields_of(raw) if isinstance(raw, bytes) else dict(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise EventInvalid(self.name, "payload", f"not a JSON object ({error})") from None
        for name in CHANGE_FIELDS:
            if name in data:
                raise EventInvalid(self.name, f"payload.{name}", "give it beside the payload")
        return data

    @staticmethod
    def _of_schema(schema: EventSchema, data: Mapping[str, object]) -> Mapping[str, object]:
        """Return the data without before, after and diff where the schema has no such field."""
        return {
            name: value
            for name, value in data.items()
            if name not in CHANGE_FIELDS or name in schema.names
        }

    def complete(self, new: NewEvent, data: Mapping[str, object]) -> NewEvent:
        """Return the event with its entity and key, or raise ``EventInvalid``."""
        given = [name for name in CHANGE_FIELDS if getattr(new, name) is not None]
        missing = [name for name in _NEEDED.get(self.change, ()) if name not in given]
        if self.change == "any" and not given:
            raise EventInvalid(self.name, "before", "give before, after or diff")
        if missing:
            raise EventInvalid(self.name, missing[0], "is required: what the change was")
        if new.entity_type not in ("", self.entity):
            problem = f"{new.entity_type!r} is not the {self.entity!r} that the catalog names"
            raise EventInvalid(self.name, "entity_type", problem)
        entity_id = self._entity_id_of(new, data)
        key = new.key if new.key is not None else self._key_of(new, entity_id, data)
        return msgspec.structs.replace(new, entity_type=self.entity, entity_id=entity_id, key=key)

    def _entity_id_of(self, new: NewEvent, data: Mapping[str, object]) -> str:
        if self.entity_id is None:
            if not new.entity_id:
                raise EventInvalid(self.name, "entity_id", f"which {self.entity} is it about?")
            return new.entity_id
        found = value_at(data, self.entity_id)
        if not isinstance(found, str | int) or isinstance(found, bool):
            problem = "the id of the entity is not text or a whole number"
            raise EventInvalid(self.name, self.entity_id, problem)
        if new.entity_id not in ("", str(found)):
            problem = f"{new.entity_id!r} differs from {self.entity_id}, which is {found!r}"
            raise EventInvalid(self.name, "entity_id", problem)
        return str(found)

    def _key_of(self, new: NewEvent, entity_id: str, data: Mapping[str, object]) -> str | None:
        if self.key is None:
            return None
        values = {"entity_id": entity_id, "entity_type": self.entity, "scope": new.scope}

        def value_of(path: str) -> object:
            return values[path] if path in values else value_at(data, path)

        return self.key.render(value_of)[:NAME_LIMIT]

    def _problems(self) -> Iterator[tuple[str, str]]:
        schema = self.schema
        named = [] if self.entity_id is None else [("entity_id", self.entity_id)]
        named += [("sensitive", field) for field in self.sensitive]
        if self.coalesce is not None:
            named += [("coalesce", field) for field in self.coalesce.by]
        for what, field in named:
            if not schema.has(field):
                yield what, f"there is no field {field!r}; there are {', '.join(schema.names)}"
        if self.change not in get_args(Change):
            yield "change", f"{self.change!r} is not one of {', '.join(get_args(Change))}"
        for what, template, roots in (
            ("text", self.text, TEXT_ROOTS),
            ("key", self.key, ("entity_id", "entity_type", "scope")),
        ):
            for path in () if template is None else template.paths:
                if self._is_sensitive(path):
                    yield what, f"{{{path}}} is sensitive: leave it out of what people read"
                elif path not in roots and not schema.has(path):
                    known = ", ".join([*schema.names, *roots])
                    yield what, f"{{{path}}} is not a field; there are {known}"

    def _is_sensitive(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}.") for one in self.sensitive)


def data_of(payload: Mapping[str, object], event: NewEvent | Event) -> dict[str, object]:
    """Return the data of an event with this payload: with before, after and diff, if it has."""
    data = dict(payload)
    for name in CHANGE_FIELDS:
        value = getattr(event, name)
        if value is not None:
            data[name] = msgspec.json.decode(value) if isinstance(value, bytes) else value
    return data


def _encoded(data: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput("payload", f"not JSON ({error})") from None
