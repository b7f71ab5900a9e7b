"""PostgreSQL beside the oracle, step by step; and through the loss of every connection."""

import contextlib
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.testing import VirtualClock
from holdfast.testing.machine import OPTIONS, EngineMachine

from .servers import Databases
from .test_conformance import postgres_options

EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "12"))
PARTS = 4


def machine_on(databases: Databases) -> type[EngineMachine]:
    class PostgresMachine(EngineMachine):
        async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
            self.stack = contextlib.ExitStack()
            self.url = self.stack.enter_context(databases.fresh())
            return await self._open()

        async def _open(self) -> PostgresEngine:
            options = postgres_options(OPTIONS)
            return await PostgresEngine.open(self.url, clock=self.clock, options=options)

        async def reopen(self, cut_seed: int | None) -> Engine | None:
            del cut_seed
            await self.subject.close()
            self.clock.advance(0.001)  # as the server's does: only one engine counts times apart
            engine = await self._open()
            await engine._pruner.fold_dead_changes()
            return engine

        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "stack"):
                self.stack.close()

    return PostgresMachine


def check(databases: Databases, examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine_on(databases),
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_postgres_18_does_what_the_oracle_does(server18, part):
    del part
    check(server18, EXAMPLES // PARTS)


def test_postgres_16_does_what_the_oracle_does(server16):
    check(server16, EXAMPLES // PARTS)
