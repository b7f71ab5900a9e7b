"""A page of a list as an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from .call import Answer, ApiCall

DEFAULT_LIMIT = 50


def page_answer(
    call: ApiCall,
    items: Sequence[object],
    following: str,
    previous: str = "",
    meta: Mapping[str, object] | None = None,
) -> Answer:
    """Return the items with the cursors of the pages beside them, and links to those."""
    found: dict[str, object] = dict(meta or {})
    links: list[str] = []
    others = [(name, value) for name, value in call.query if name != "cursor"]
    for name, rel, cursor in (
        ("next_cursor", "next", following),
        ("prev_cursor", "prev", previous),
    ):
        if cursor:
            found[name] = cursor
            links.append(f'<?{urlencode([*others, ("cursor", cursor)])}>; rel="{rel}"')
    headers = {"link": ", ".join(links)} if links else {}
    return Answer(data=list(items), meta=found, headers=headers)
