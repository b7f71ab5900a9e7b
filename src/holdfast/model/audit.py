"""Who changes something and why, and the audit.

Audit entries are a chain: the hash of each covers its own fields and the hash before it, so that
none can be changed, removed or inserted without breaking the rest.
"""

from __future__ import annotations

import hashlib

import msgspec

from .errors import InvalidInput
from .job import MAX_TIME_US, Whole, check_size
from .letter_case import folded
from .record import Record, check_once

NAME_LIMIT = 200
TEXT_LIMIT = 4_000
CHANGES_LIMIT = 64 * 1024


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """One action. ``changes`` is a JSON object."""

    action: str
    resource_type: str
    resource_id: str
    user_id: str
    changes: str = "{}"
    reason: str = ""
    tenant: str = ""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        for field in ("action", "resource_type", "user_id"):
            _check_text(field, getattr(self, field), NAME_LIMIT)
        for field in ("resource_id", "tenant"):
            _check_text(field, getattr(self, field), TEXT_LIMIT, empty=True)
        _check_text("reason", self.reason, TEXT_LIMIT, empty=True)
        _check_text("changes", self.changes, CHANGES_LIMIT)
        try:
            msgspec.json.decode(self.changes, type=dict[str, object])
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidInput("changes", f"not a JSON object ({error})") from None


class AuditRecord(msgspec.Struct, frozen=True, array_like=True):
    """An entry in its place in the chain: ``number`` counts from 1."""

    number: Whole
    at_us: Whole
    entry: AuditEntry
    previous_hash: str
    hash: str


class AuditFilter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Which records of the audit: each field that is set must match."""

    by: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    """Such as ``job.replay``; one that ends with a dot is all that begin with it: ``job.``."""
    resource_type: str | None = None
    resource_id: str | None = None
    tenant: str | None = None
    from_us: int | None = None
    to_us: int | None = None
    """Not included."""
    text: str = ""
    """Part of the reason, in any case of letters."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        for field in ("by", "actions"):
            if type(getattr(self, field)) is not tuple:
                raise InvalidInput(field, "give a tuple of names")
            for name in getattr(self, field):
                _check_text(field, name, NAME_LIMIT)
        for field in ("resource_type", "resource_id", "tenant"):
            if getattr(self, field) is not None:
                _check_text(field, getattr(self, field), TEXT_LIMIT, empty=True)
        for field in ("from_us", "to_us"):
            if getattr(self, field) is not None:
                check_size(field, getattr(self, field), 0, MAX_TIME_US)
        _check_text("text", self.text, TEXT_LIMIT, empty=True)

    def matches(self, record: AuditRecord) -> bool:
        """Whether the record is one of these."""
        entry = record.entry
        return (
            (not self.by or entry.user_id in self.by)
            and (not self.actions or any(_is_action(entry.action, one) for one in self.actions))
            and self.resource_type in (None, entry.resource_type)
            and self.resource_id in (None, entry.resource_id)
            and self.tenant in (None, entry.tenant)
            and (self.from_us is None or record.at_us >= self.from_us)
            and (self.to_us is None or record.at_us < self.to_us)
            and (not self.text or folded(self.text) in folded(entry.reason))
        )


class AuditHead(msgspec.Struct, frozen=True, array_like=True):
    """The end of the chain: with a copy in another place, no change before it goes unnoticed."""

    count: Whole = 0
    hash: str = ""


WHOLE_AUDIT = AuditFilter()
MAX_NUMBER = 2**62
"""Above the number of every record."""


def _is_action(action: str, wanted: str) -> bool:
    return action.startswith(wanted) if wanted.endswith(".") else action == wanted


def chain(head: AuditHead, entry: AuditEntry, at_us: int) -> AuditRecord:
    """Return the record of this entry after this head."""
    number = head.count + 1
    return AuditRecord(number, at_us, entry, head.hash, _hash(number, at_us, entry, head.hash))


def follows(head: AuditHead, record: AuditRecord) -> bool:
    """Whether this record is intact and comes right after this head."""
    expected = chain(head, record.entry, record.at_us)
    return record == expected


def head_of(record: AuditRecord) -> AuditHead:
    """Return the head of the chain that ends with this record."""
    return AuditHead(record.number, record.hash)


def _hash(number: int, at_us: int, entry: AuditEntry, previous_hash: str) -> str:
    text = msgspec.json.encode([number, at_us, entry, previous_hash])
    return hashlib.sha256(text).hexdigest()


class Attribution(msgspec.Struct, frozen=True, array_like=True):
    """Who asks for a change, and why. Its audit entries are committed with the change."""

    by: str
    why: str
    audit: tuple[AuditEntry, ...] = ()
    once: Record | None = None
    """A record that is committed with the change: if it exists, there is no change; see
    ``Engine.enqueue``."""

    def check(self) -> None:
        """Raise ``InvalidInput`` unless there are a name and a reason."""
        _check_text("by", self.by, NAME_LIMIT)
        _check_text("why", self.why, TEXT_LIMIT)
        if type(self.audit) is not tuple:
            raise InvalidInput("audit", "the entries are not a tuple")
        for entry in self.audit:
            if type(entry) is not AuditEntry:
                raise InvalidInput("audit", f"a {type(entry).__name__} is not an AuditEntry")
            entry.check()
        check_once(self.once)


def check_text(field: str, text: str) -> str:
    """Return a note or a reason, or raise ``InvalidInput``."""
    return _check_text(field, text, TEXT_LIMIT)


def _check_text(field: str, text: str, limit: int, *, empty: bool = False) -> str:
    if type(text) is not str or len(text) > limit or not (empty or text.strip()):
        raise InvalidInput(field, f"give a text of at most {limit:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "it contains an unpaired surrogate") from None
    return text
