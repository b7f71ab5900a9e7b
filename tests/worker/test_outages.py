"""Outages with default settings, in virtual time: nothing dies, and nothing is overrun."""

from collections import Counter, deque

import pytest

from holdfast import Holdfast
from holdfast.engines.embedded import commands
from holdfast.model.audit import Attribution
from holdfast.model.job import MICROSECONDS, NewJob, State
from holdfast.model.outage import Outage, OutagePhase
from holdfast.testing.app import Rehearsal

HOUR = 3_600
OPS = Attribution("ann", "a test")


class Unavailable(Exception):
    status = 503


class TooMany(Exception):
    status = 429


class Service:
    """Answers up to ``most_per_second`` calls, and none between two times."""

    def __init__(self, most_per_second: int = 100_000) -> None:
        self.most_per_second = most_per_second
        self.down_from_us = self.up_from_us = 0
        self.answered: list[int] = []
        self.failed: list[int] = []
        self._last: deque[int] = deque()

    def go_down(self, now_us: int, seconds: float) -> None:
        self.down_from_us, self.up_from_us = now_us, now_us + int(seconds * MICROSECONDS)

    def call(self, now_us: int) -> None:
        while self._last and self._last[0] <= now_us - MICROSECONDS:
            self._last.popleft()
        overrun = len(self._last) >= self.most_per_second
        if overrun or self.down_from_us <= now_us < self.up_from_us:
            self.failed.append(now_us)
            raise Unavailable
        self._last.append(now_us)
        self.answered.append(now_us)


def application(service: Service, **options: str) -> tuple[Holdfast, Rehearsal]:
    app = Holdfast("memory")
    testing = app.testing()

    @app.task(**options)  # type: ignore[call-overload, untyped-decorator]
    async def charge() -> None:
        service.call(testing.clock.now_us())

    @app.task
    async def other() -> None:
        """Need nothing."""

    return app, testing


def enqueue(app: Holdfast, testing: Rehearsal, jobs: int, task: str = "charge") -> None:
    queue = app.registry.tasks[task].queue
    for _thousand in range(0, jobs, 1_000):
        new = [NewJob(task=task, queue=queue) for _n in range(min(jobs, 1_000))]
        testing.call(testing.engine.enqueue(new))


def outages(testing: Rehearsal, *, ended: bool = False) -> list[Outage]:
    return testing.call(testing.engine.outages(ended=ended))


def phases(testing: Rehearsal, *, ended: bool = False) -> list[OutagePhase]:
    return [one.phase for one in outages(testing, ended=ended)]


def states(testing: Rehearsal) -> Counter[State]:
    return Counter(job.state for job in testing.jobs())


def outlive(jobs: int, seconds: float, most_per_second: int = 100_000) -> Service:
    """Go through an outage with this many jobs that wait, and wait until all is done."""
    service = Service(most_per_second)
    app, testing = application(service, dependency="payments-api")
    with testing:
        service.go_down(testing.clock.now_us(), seconds)
        enqueue(app, testing, jobs)
        testing.advance(5)
        assert phases(testing) == [OutagePhase.OUT]
        charged = sum(job.attempt for job in testing.jobs())
        assert charged < 50, "it trips before many have failed"
        testing.advance(seconds - 6)
        assert sum(job.attempt for job in testing.jobs()) == charged, "charged after the trip"
        assert states(testing) == {State.PENDING: jobs}
        assert len(service.failed) <= seconds / 60 + 50, "a probe a minute"
        service.failed.clear()
        for _minute in range(60):
            if states(testing) == {State.COMPLETED: jobs}:
                break
            testing.advance(60)
        assert states(testing) == {State.COMPLETED: jobs}
        testing.advance(20)
        assert outages(testing) == []
        assert phases(testing, ended=True) == [OutagePhase.ENDED]
    return service


def test_four_hours_of_outage_kill_and_charge_nothing() -> None:
    service = outlive(10_000, 4 * HOUR)
    assert service.answered[0] - service.up_from_us <= 61 * MICROSECONDS
    per_second = Counter((at - service.answered[0]) // MICROSECONDS for at in service.answered)
    assert per_second[0] <= 2, "no thundering herd"
    assert per_second[1] <= 4
    early = [at for at in service.answered if at - service.answered[0] < 60 * MICROSECONDS]
    assert len(early) >= 9_900, "nearly all are done within a minute"
    assert service.answered[-1] - service.answered[0] < 130 * MICROSECONDS, "also the last probes"


def test_what_comes_back_is_not_overrun() -> None:
    """A dependency that fails above 40/s: bounded failures, and drained near what it can do."""
    service = outlive(4_000, 600, most_per_second=40)
    seconds = (service.answered[-1] - service.answered[0]) / MICROSECONDS
    assert len(service.failed) < 0.05 * len(service.answered)
    worst = Counter(at // MICROSECONDS for at in service.failed).most_common(1)[0][1]
    assert worst <= 40, "at most as much again as it can do, while the rate doubles"
    assert 4_000 / seconds > 20, "at least half of what it can do"


def test_control_without_the_rule_of_the_engine_jobs_are_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "outage_retry_at_us", lambda *_arguments: None)
    with pytest.raises(AssertionError, match="charged"):
        outlive(100, HOUR / 2)


def test_a_queue_without_a_declared_dependency_trips_too() -> None:
    service = Service()
    app, testing = application(service)
    with testing:
        service.go_down(testing.clock.now_us(), HOUR)
        enqueue(app, testing, 100)
        testing.advance(5)
        assert [one.dependency for one in outages(testing)] == ["default"]


def test_but_not_while_another_task_of_it_works() -> None:
    service = Service()
    app, testing = application(service)
    with testing:
        service.go_down(testing.clock.now_us(), HOUR)
        enqueue(app, testing, 1, task="other")
        testing.advance(1)
        enqueue(app, testing, 100)
        testing.advance(300)
        assert outages(testing, ended=True) == []


def test_one_job_that_always_fails_is_no_outage() -> None:
    service = Service()
    app, testing = application(service, dependency="payments-api")
    with testing:
        service.go_down(testing.clock.now_us(), HOUR)
        enqueue(app, testing, 1)
        testing.advance(600)
        assert len(service.failed) > 5
        assert outages(testing, ended=True) == []


def test_a_rate_limit_is_no_outage() -> None:
    app = Holdfast("memory")

    @app.task
    async def limited() -> None:
        raise TooMany

    with app.testing() as testing:
        enqueue(app, testing, 100, task="limited")
        testing.advance(60)
        assert outages(testing, ended=True) == []


@pytest.mark.parametrize(
    "flag", ["outage_mode", "outage_mode/default@payments-api", "outage_mode/payments-api"]
)
def test_a_flag_switches_it_off(flag: str) -> None:
    service = Service()
    app, testing = application(service, dependency="payments-api")
    with testing:
        testing.call(testing.engine.set_flag(flag, OPS, on=False))
        testing.advance(10)
        service.go_down(testing.clock.now_us(), HOUR)
        enqueue(app, testing, 100)
        testing.advance(60)
        assert outages(testing, ended=True) == []


def test_a_flag_ends_what_workers_noticed_and_not_what_a_person_started() -> None:
    service = Service()
    app, testing = application(service, dependency="payments-api")
    with testing:
        service.go_down(testing.clock.now_us(), HOUR)
        enqueue(app, testing, 100)
        testing.advance(5)
        testing.call(testing.engine.set_outage("by-hand", OPS, on=True))
        assert [one.dependency for one in outages(testing)] == ["by-hand", "payments-api"]
        testing.call(testing.engine.set_flag("outage_mode", OPS, on=False))
        testing.advance(10)
        assert [one.dependency for one in outages(testing)] == ["by-hand"]
        [audited] = testing.call(testing.engine.audited())
        assert (audited.entry.action, audited.entry.user_id) == ("outage.end", "holdfast")


@pytest.mark.parametrize("ill", ["raises", "false", "hangs"])
def test_a_health_check_is_called_instead_of_a_job(ill: str) -> None:
    import asyncio  # noqa: PLC0415

    service = Service()
    app, testing = application(service, dependency="payments-api")
    calls: list[int] = []

    @app.health_check("payments-api", timeout="5s")
    async def payments_up() -> bool:
        now_us = testing.clock.now_us()
        calls.append(now_us)
        if now_us >= service.up_from_us:
            return True
        if ill == "raises":
            raise Unavailable
        if ill == "hangs":
            await asyncio.sleep(60)
        return False

    with testing:
        service.go_down(testing.clock.now_us(), HOUR)
        enqueue(app, testing, 100)
        testing.advance(5)
        service.failed.clear()
        testing.advance(HOUR - 6)
        assert not service.failed, "no job was risked"
        assert 50 <= len(calls) <= 70, "a call a minute"
        testing.advance(180)
        testing.assert_completed("charge", times=100)


def test_the_queue_of_a_dependency_is_served_with_the_slots_of_its_base() -> None:
    service = Service()
    app, testing = application(service, queue="mail", dependency="payments-api")
    spec = app.registry.tasks["charge"]
    assert spec.queue == "mail@payments-api"
    assert spec.queue_for("bulk") == "bulk@payments-api"
    assert spec.queue_for("bulk@other") == "bulk@other"
    with testing:
        testing.run(app.enqueue("charge"))
        testing.run(app.enqueue("charge", queue="bulk"))
        testing.advance(5)
        found = testing.assert_completed("charge", times=2)
        assert sorted(job.queue for job in found) == ["bulk@payments-api", "mail@payments-api"]
