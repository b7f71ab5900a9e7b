"""Versions of the records in the log and in snapshots, and the way from old ones to new ones.

Every frame carries the schema version of its records. An older one is migrated step by step
when it is read, and the next owner writes it back at once; a newer one is refused. To change what
is stored: raise ``SCHEMA``, add the step from the version before, and add a golden file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.effects import Effect
from holdfast.model.errors import UnknownFormat
from holdfast.model.job import Job

log = StructuredLog("holdfast.journal")

SCHEMA = 6

Step = Callable[[list[object]], list[object]]
"""From the raw records of one version to those of the next."""

_AS_IT_IS: Step = lambda records: records

LOG_STEPS: Mapping[int, Step] = dict.fromkeys(range(1, SCHEMA), _AS_IT_IS)
SNAPSHOT_STEPS: Mapping[int, Step] = dict.fromkeys(range(1, SCHEMA), _AS_IT_IS)
"""By the version that they start from. Version 2 added fields at the end, effects, and history: a
snapshot of version 1 has finished jobs in it (``SnapshotHead.cold`` is false). Version 3 added
``keep_payload`` to policies, and ``last_created_us`` to the heads of snapshots. Version 4 added
operations, outages, ``status`` of failures, the failure of ``Snoozed``, and what people did with
groups of failures. Version 5 added events and subscriptions.
Version 6 added records."""

T = TypeVar("T")

_EFFECTS: msgspec.msgpack.Decoder[list[Effect]] = msgspec.msgpack.Decoder(list[Effect])
_JOBS: msgspec.msgpack.Decoder[list[Job]] = msgspec.msgpack.Decoder(list[Job])


class RecordReader:
    """Decodes the records of one file; migrates old ones and logs that once."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._logged: set[int] = set()

    def effects(self, payload: bytes, schema: int) -> list[Effect]:
        """Return the effects of a log frame; raise ``msgspec.ValidationError`` if malformed."""
        return self._read(payload, schema, LOG_STEPS, _EFFECTS)

    def jobs(self, payload: bytes, schema: int) -> list[Job]:
        """Return the jobs of a snapshot frame."""
        return self._read(payload, schema, SNAPSHOT_STEPS, _JOBS)

    def _read(
        self,
        payload: bytes,
        schema: int,
        steps: Mapping[int, Step],
        decoder: msgspec.msgpack.Decoder[list[T]],
    ) -> list[T]:
        if schema == SCHEMA:
            return decoder.decode(payload)
        if not 1 <= schema < SCHEMA:
            raise UnknownFormat(self._file, "schema version", schema, SCHEMA)
        if schema not in self._logged:
            self._logged.add(schema)
            log.emit("journal.migrated", file=self._file, from_schema=schema, to_schema=SCHEMA)
        raw: Sequence[object] = msgspec.msgpack.decode(payload, type=list[object])
        for version in range(schema, SCHEMA):
            raw = steps[version](list(raw))
        return decoder.decode(msgspec.msgpack.encode(raw))
