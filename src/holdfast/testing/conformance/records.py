"""Records of services on top of a store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.engines.dump.format import DumpedRecord
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import AccessDenied, ChangedMeanwhile, InvalidInput
from holdfast.model.job import MICROSECONDS
from holdfast.model.record import MAX_VALUE_BYTES, Record

from .fixture import OPERATION, WRONG, EngineFixture, Suite, on_engine

KEY = Record("key", "k1", '{"role":"viewer"}')


class StoredRecordRules(Suite):
    """A record changes only from what was expected, and expires."""

    @on_engine
    async def test_a_record_is_stored_changed_and_removed_with_its_audit(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        entry = AuditEntry("key.create", "key", "k1", "ann")
        audited = Attribution("ann", "a viewer", (entry,))
        await engine.set_record("key", "k1", KEY, audited, expected=None)
        other = replace(KEY, kind="session")
        await engine.set_record("session", "k1", other, OPERATION, expected=None)
        assert await engine.records("key") == [KEY]
        changed = replace(KEY, value='{"role":"admin"}')
        await engine.set_record("key", "k1", changed, audited, expected=KEY)
        assert await engine.records("key", ["k0", "k1", "k1"]) == [changed]
        await engine.set_record("key", "k1", None, audited, expected=changed)
        assert await engine.records("key") == []
        assert await engine.records("session") == [other]
        assert [one.entry for one in await engine.audited()] == [entry] * 3

    @on_engine
    async def test_nothing_changes_unless_the_record_is_as_expected(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        await engine.set_record("key", "k1", KEY, OPERATION, expected=None)
        entry = AuditEntry("key.revoke", "key", "k1", "ann")
        audited = Attribution("ann", "gone", (entry,))
        for wrong in (None, replace(KEY, value="{}")):
            for after in (None, replace(KEY, value='{"role":"admin"}')):
                with pytest.raises(ChangedMeanwhile):
                    await engine.set_record("key", "k1", after, audited, expected=wrong)
        with pytest.raises(ChangedMeanwhile):
            await engine.set_record("key", "k2", None, audited, expected=KEY)
        limited = Caller(tenant="default")
        with pytest.raises(AccessDenied):
            await engine.set_record("key", "k1", None, audited, expected=KEY, caller=limited)
        assert await engine.records("key") == [KEY]
        assert await engine.audited() == []

    @on_engine
    async def test_an_expired_record_counts_as_gone(self, fixture: EngineFixture) -> None:
        engine, clock = fixture.engine, fixture.clock
        soon = Record("session", "s1", "{}", clock.now_us() + 60 * MICROSECONDS)
        await engine.set_record("session", "s1", soon, OPERATION, expected=None)
        clock.advance(59)
        assert await engine.records("session") == [soon]
        clock.advance(1)
        assert await engine.records("session") == []
        assert await engine.records("session", ["s1"]) == []
        again = replace(soon, expires_at_us=0)
        await engine.set_record("session", "s1", again, OPERATION, expected=None)
        assert await engine.records("session") == [again]

    @on_engine
    async def test_records_that_do_not_expire_are_in_a_dump(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        later = fixture.clock.now_us() + 60 * MICROSECONDS
        await engine.set_record("key", "k1", KEY, OPERATION, expected=None)
        session = Record("session", "s1", "{}", later)
        await engine.set_record("session", "s1", session, OPERATION, expected=None)
        dumped = [record async for batch in engine.dump() for record in batch]
        assert [one for one in dumped if isinstance(one, DumpedRecord)] == [DumpedRecord(KEY)]

    @on_engine
    async def test_bad_records_are_refused(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        wrong: list[Record] = [
            replace(KEY, value="[]"),
            replace(KEY, value="{"),
            replace(KEY, value='{"a":"' + "x" * MAX_VALUE_BYTES + '"}'),
            replace(KEY, name="k2"),
            replace(KEY, kind="session"),
            replace(KEY, expires_at_us=-1),
            replace(KEY, value=WRONG),
        ]
        for bad in wrong:
            with pytest.raises(InvalidInput):
                await engine.set_record("key", "k1", bad, OPERATION, expected=None)
        for kind, name in (("", "k1"), ("key", ""), ("key", "a\nb")):
            with pytest.raises(InvalidInput):
                await engine.set_record(kind, name, None, OPERATION, expected=None)
            with pytest.raises(InvalidInput):
                await engine.records(kind, [name])
        assert await engine.records("key") == []
