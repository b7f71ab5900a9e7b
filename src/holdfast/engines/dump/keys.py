"""Leaving keys out of what is loaded: who may call one store may not call a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from holdfast.model.api_key import KIND, USE_KIND

from .format import DumpedRecord, DumpRecord


def without_keys(
    batches: Iterable[Sequence[DumpRecord]], left_out: Callable[[int], None]
) -> Iterator[Sequence[DumpRecord]]:
    """Yield the batches without the keys for the HTTP API; ``left_out`` gets their number."""
    for batch in batches:
        kinds = [one.record.kind if isinstance(one, DumpedRecord) else "" for one in batch]
        left_out(kinds.count(KIND))
        yield [one for one, kind in zip(batch, kinds, strict=True) if kind not in (KIND, USE_KIND)]
