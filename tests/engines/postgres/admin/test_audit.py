"""The audit on PostgreSQL: an entry that cannot be read is altered, not a bug."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.audit import AuditEntry
from holdfast.model.errors import AuditAltered
from holdfast.operations.operations import Operations


@pytest.mark.parametrize("record", [b"", b"\xc1", b"\x91\x01", b"\xff" * 40])
async def test_an_entry_that_cannot_be_read_is_named_as_altered(server18, record):
    with server18.fresh() as url:
        engine = await PostgresEngine.open(url)
        try:
            await engine.audit([AuditEntry("test", "job", f"j{n}", "ann") for n in range(5)])
            operations = Operations(engine)
            assert (await operations.verify_audit())[1] == ""
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    "UPDATE holdfast.audit SET record = %s WHERE number = 4", [record]
                )
            head, problem = await operations.verify_audit()
            assert head.count == 3
            assert problem.startswith("entry 4 cannot be read (")
            with pytest.raises(AuditAltered, match="entry 4 of the audit was altered"):
                async for _batch in engine.dump():
                    pass
        finally:
            await engine.close()
