"""Who acts, and for which request: what is stamped on events."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .errors import InvalidInput
from .event import USER_ACTOR, Json
from .job import check_name


class Actor(msgspec.Struct, frozen=True):
    """Who did something: a user, a service, the system."""

    id: str
    """Who it is."""
    type: str = USER_ACTOR
    """What kind of actor: ``user``, ``service`` or a word of yours."""
    name: str = ""
    """As people know them; kept with the event, also when the user is gone."""

    @classmethod
    def of(cls, value: object) -> Actor:
        """Return the actor; a text is the id of a user. Raise ``InvalidInput``."""
        if not isinstance(value, Actor | str):
            raise InvalidInput("actor", f"{value!r} is not an Actor or the id of a user")
        actor = value if isinstance(value, Actor) else cls(value)
        check_name("actor", actor.id)
        check_name("actor_type", actor.type)
        return actor


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What an event says beside its data. None: as the context or the catalog says."""

    actor: Actor | None = None
    tenant: str | None = None
    scope: str | None = None
    request_id: str | None = None
    device: str | None = None
    client: str | None = None
    ip: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    id: str | None = None
    reason: str | None = None
    occurred_at_us: int | None = None
    entity_id: str | None = None
    key: str | None = None
    before: Json | None = None
    after: Json | None = None
    diff: Json | None = None
    supersedes: str | None = None

    def given(self) -> dict[str, object]:
        """Return what is given here, by name."""
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }

    def over(self, context: Mapping[str, object]) -> Envelope:
        """Return this envelope with what the context says where this one says nothing."""
        return msgspec.structs.replace(self, **{**context, **self.given()})

    def stamps(self) -> dict[str, object]:
        """Return the fields of the event that it sets; raise ``InvalidInput`` without an actor."""
        if self.actor is None:
            raise InvalidInput(
                "actor",
                'who acts? Give actor=, or append inside `with app.acting_as("user", ID)`',
            )
        fields = self.given()
        del fields["actor"]
        return {
            **fields,
            "actor_type": self.actor.type,
            "actor_id": self.actor.id,
            "actor_name": self.actor.name,
        }
