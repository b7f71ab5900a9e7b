"""Jobs that are alike: what most calls that ask for many ask for."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from .job import NewJob
from .lazy_sequence import LazySequence


class UniformBatch(LazySequence[NewJob]):
    """Requests that differ in nothing but their payloads, made as they are looked at.

    So an engine can check once what they have in common, and send the first of them on while the
    others are not even encoded.
    """

    def __init__(self, like: NewJob, payloads: Iterable[bytes], count: int) -> None:
        """Take what they are like, and the payload of each, as ``encode_payload`` returns it."""
        self.like = like
        self.payloads = LazySequence(payloads, count)
        super().__init__((replace(like, payload=payload) for payload in self.payloads), count)
