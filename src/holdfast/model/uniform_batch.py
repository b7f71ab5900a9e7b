"""Many new jobs that differ only in their payloads."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from .job import NewJob
from .lazy_sequence import LazySequence


class UniformBatch(LazySequence[NewJob]):
    """New jobs that differ only in their payloads, made on demand.

    An engine can check the common fields once, and send the first jobs before the others are
    encoded.
    """

    def __init__(self, like: NewJob, payloads: Iterable[bytes], count: int) -> None:
        """Take a template, and the payload of each, as ``encode_payload`` returns it."""
        self.like = like
        self.payloads = LazySequence(payloads, count)
        super().__init__((replace(like, payload=payload) for payload in self.payloads), count)
