"""ETags and the conditions of a request: If-None-Match and If-Match."""

from __future__ import annotations

import zlib

import msgspec

from .call import Answer, ApiCall
from .problems import RequestRefused


def tag_of(version: int, shown: object) -> str:
    """Return the ETag: the version, which If-Match is about, and a checksum of what is shown.

    A version changes only when a person changes something; without the checksum what runs would
    look unchanged.
    """
    return f'"{version}-{zlib.crc32(msgspec.json.encode(shown)):08x}"'


def version_of_tag(tag: str) -> int | None:
    """Return the version that an ETag names, or None if it is none of ours."""
    number = tag.strip().strip('"').partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 18 else None


def shown_unless_known(call: ApiCall, shown: object, version: int = 0) -> Answer:
    """Return what is shown with its ETag, or 304 if it is as the caller has it."""
    tag = tag_of(version, shown)
    given = call.headers.get("if-none-match", "").split(",")
    known = [one.strip().removeprefix("W/") for one in given]
    if tag in known or "*" in known:
        return Answer(data=None, status=304, headers={"etag": tag})
    return Answer(data=shown, headers={"etag": tag})


def expected_version(call: ApiCall, in_body: int | None) -> int:
    """Return the version that a change is about, of If-Match or of the body; -1: none of ours.

    Raise ``RequestRefused`` without either.
    """
    tag = call.headers.get("if-match")
    if tag is None and in_body is None:
        text = "give If-Match with the ETag of what you change, or its version in the body"
        raise RequestRefused("precondition-required", text)
    version = in_body if tag is None else version_of_tag(tag)
    return -1 if version is None else version


def stale(call: ApiCall, error: Exception) -> Exception:
    """Return what a version that is not the current one is to who asked: 412 with If-Match."""
    if "if-match" not in call.headers:
        return error
    return RequestRefused("precondition-failed", str(error))
