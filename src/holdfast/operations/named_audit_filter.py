"""A filter of the audit from named values: options of a command, or the query of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from holdfast.model import moments
from holdfast.model.audit import AuditFilter, AuditHead, check_text
from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_id

NAMES: Mapping[str, str] = {
    "by": "by",
    "action": "actions",
    "type": "resource_type",
    "resource": "resource_id",
    "tenant": "tenant",
    "since": "from_us",
    "until": "to_us",
    "text": "text",
}
"""The conditions by the names that people write; ``audit_filter_of`` takes those on the right."""
SEVERAL = frozenset({"by", "actions"})
"""The conditions that take several values."""


def audit_filter_of(named: Mapping[str, object], now_us: int) -> AuditFilter:
    """Return the filter of these conditions; raise ``InvalidInput`` naming a wrong one.

    A value is a text, or a tuple of them; ages count back from ``now_us``.
    """
    given = {name: value for name, value in named.items() if value not in (None, ())}
    if "tenant" in given:
        check_id(str(given["tenant"]), "tenant")
    if "text" in given:
        check_text("text", str(given["text"]))
    for field in ("from_us", "to_us"):
        if field in given:
            given[field] = moments.moment_us(field, str(given[field]), now_us)
    make: Callable[..., AuditFilter] = AuditFilter
    wanted = make(**given)
    wanted.check()
    return wanted


def audit_head_of(text: str) -> AuditHead:
    """Return the head that ``audit verify`` printed, or raise ``InvalidInput``."""
    found = re.fullmatch(r"([0-9]{1,15}):([0-9a-f]{64})?", text.strip())
    if found is None:
        raise InvalidInput("head", f"{text[:80]!r} is not a head as `audit verify` prints it")
    return AuditHead(int(found[1]), found[2] or "")
