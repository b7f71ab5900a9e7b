"""Parsers of the settings of OpenID Connect: addresses, and which claim gives which role."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_name
from holdfast.model.permissions import Role, roles_of
from holdfast.model.redaction import shown
from holdfast.model.visible_text import is_visible_ascii

from .store_url import file_path

_HTTPS = "https://"


def https_url(field: str, value: object) -> str:
    """Return an address unchanged: an issuer is compared letter by letter."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - rarely needed

    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    plain = is_visible_ascii(text)
    if not (usable and plain and text.startswith(_HTTPS)) or "@" in text:
        raise InvalidInput(field, f"{shown(value)} is not a URL such as https://login.example.org")
    return text


def key_set_place(field: str, value: object) -> str:
    """Return the path of a file, or an address."""
    if isinstance(value, str) and "://" in value:
        return https_url(field, value)
    return str(file_path(field, value))


def role_map(field: str, value: object) -> str:
    """Return text such as ``ops=operator,sre=responder``, checked."""
    if isinstance(value, Mapping):
        pairs = list(value.items())
        if all(isinstance(one, str) for pair in pairs for one in pair):
            value = ",".join(f"{name}={role}" for name, role in pairs)
    if not isinstance(value, str):
        raise InvalidInput(field, f"{shown(value)} is not text such as 'ops=operator'")
    found = roles_of_values(value, field)
    return ",".join(f"{name}={role.value}" for name, role in found.items())


def roles_of_values(text: str, field: str = "api_oidc_roles") -> dict[str, Role]:
    """Return which value of a claim gives which role."""
    found: dict[str, Role] = {}
    for part in text.split(","):
        name, equals, role = part.rpartition("=")
        if not equals:
            raise InvalidInput(field, f"{shown(part)} is not VALUE=ROLE, such as ops=operator")
        claimed = check_name(field, name.strip())
        if claimed in found:
            raise InvalidInput(field, f"{shown(text)} names {claimed!r} twice")
        try:
            found[claimed] = roles_of([role.strip()])[0]
        except InvalidInput as error:
            raise InvalidInput(field, error.problem) from None
    return found
