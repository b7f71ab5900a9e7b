"""What is kept of finished jobs, and for how long."""

from __future__ import annotations

from hashlib import shake_256
from typing import Protocol, runtime_checkable

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.model.actions import CancelJobs
from holdfast.model.errors import DuplicateId
from holdfast.model.job import State

from .fixture import OPERATION, OPTIONS, EngineFixture, Suite, named, on_engine

_MAX_BYTES = 256 * 1024
_SIZE_BYTES = 16 * 1024
_ROUNDS = 40


@runtime_checkable
class _Prunable(Protocol):
    async def prune(self) -> object:
        """Forget what need not be kept."""


async def _forget(engine: Engine) -> None:
    """Have the engine forget what it may forget now."""
    await engine.find(limit=1)  # everything that finished is in the store now
    if isinstance(engine, _Prunable):
        await engine.prune()
    await engine.counts()


class RetentionRules(Suite):
    """Payloads of finished jobs, and the bound on their bytes."""

    @on_engine
    async def test_finished_jobs_keep_their_payload(self, fixture: EngineFixture) -> None:
        await fixture.put("done", "cancelled", payload={"book": "Übergröße"})
        before = (await fixture.job("done")).payload
        await fixture.complete("done")
        [cancelled] = (
            await fixture.engine.operate(CancelJobs(), named("cancelled"), OPERATION)
        ).jobs
        assert cancelled.payload == before
        for job_id in ("done", "cancelled"):
            assert (await fixture.job(job_id)).payload == before
            assert (await fixture.history(job_id)).job.payload == before
        page = await fixture.engine.find()
        assert [job.payload for job in page.jobs] == [before, before]

    @on_engine
    async def test_a_queue_may_drop_payloads_of_finished_jobs(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(keep_payload=False)
        await fixture.put("done", "tied", "cancelled", "dead", key=None)
        await fixture.put("later", depends_on=("tied",))
        await fixture.complete("done")
        await fixture.complete("tied")
        [cancelled] = (
            await fixture.engine.operate(CancelJobs(), named("cancelled"), OPERATION)
        ).jobs
        assert cancelled.payload == b""
        await fixture.dead_letter("dead")
        for job_id in ("done", "tied", "cancelled"):
            assert (await fixture.job(job_id)).payload == b""
        assert (await fixture.job("dead")).payload == b'{"n":1}', "it may be replayed"
        assert (await fixture.job("later")).payload == b'{"n":1}'
        await fixture.set_policy(keep_payload=True)
        await fixture.complete("later")
        assert (await fixture.job("later")).payload == b'{"n":1}'
        assert (await fixture.job("done")).payload == b"", "what is gone stays so"

    def test_the_setting_decides_where_no_policy_does(self) -> None:
        async def scenario(fixture: EngineFixture) -> None:
            await fixture.set_policy("kept", keep_payload=True)
            await fixture.put("a")
            await fixture.put("b", queue="kept")
            await fixture.complete("a")
            await fixture.complete("b", queues=["kept"])
            assert (await fixture.job("a")).payload == b""
            assert (await fixture.job("b")).payload == b'{"n":1}'

        self.check(scenario, replace(OPTIONS, keep_payload=False))

    def test_what_finished_first_goes_when_there_are_too_many_bytes(self) -> None:
        async def scenario(fixture: EngineFixture) -> None:
            await fixture.put_dead("dead", payload={"text": _noise(_ROUNDS)})
            ids = [f"job-{number:02}" for number in range(_ROUNDS)]
            for number, job_id in enumerate(ids):
                await fixture.put(job_id, payload={"text": _noise(number)})
                await fixture.complete(job_id)
                fixture.clock.advance(0.5)
            await _forget(fixture.engine)
            kept = await fixture.find(states=(State.COMPLETED,))
            assert kept == ids[-len(kept) :], "those that finished first go first"
            assert _MAX_BYTES // 4 <= len(kept) * _SIZE_BYTES <= _MAX_BYTES
            assert await fixture.state("dead") is State.DEAD
            assert (await fixture.counts()).completed == len(kept)
            assert await fixture.engine.get(ids[:1]) == [None]
            assert await fixture.put(ids[0]) == ids[:1], "its id is free again"
            with pytest.raises(DuplicateId):
                await fixture.put(ids[-1])
            assert (await fixture.job(ids[-1])).payload != b""

        self.check(scenario, replace(OPTIONS, max_history_bytes=_MAX_BYTES))


def _noise(seed: int) -> str:
    """Return a text that hardly compresses: a store may compress what it keeps."""
    return shake_256(bytes([seed])).hexdigest(_SIZE_BYTES // 2)
