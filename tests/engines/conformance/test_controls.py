"""Negative controls: an engine with one mistake makes the suite, or the machine, fail."""

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.audit import AuditFilter
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Order
from holdfast.testing import VirtualClock
from holdfast.testing.conformance import EngineConformance, fixture
from holdfast.testing.machine import EngineMachine

from . import broken

FAST = settings(
    max_examples=5_000,  # it ends with the first one that is noticed
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

NOTICED: list[tuple[type[MemoryEngine], str, tuple[object, ...]]] = [
    (broken.RecordsApart, "test_jobs_and_their_record_are_committed_together", ()),
    (broken.RecordsApart, "test_an_action_and_its_record_are_committed_together", ("edit",)),
    (broken.KeysBesideEachOther, "test_nothing_of_a_key_is_claimed_while_one_is_in_flight", ()),
    (broken.NoPrefixRule, "test_a_later_one_cannot_end_before_an_earlier_one", ()),
    (broken.NoPrefixRule, "test_when_one_returns_those_behind_it_are_released", ("retry",)),
    (broken.NoPrefixRule, "test_a_reclaimed_one_takes_those_behind_it_along", ()),
    (broken.ChainsCrossEverything, "test_a_chain_does_not_cross_another_task", ()),
    (broken.ChainsCrossEverything, "test_a_chain_does_not_cross_a_job_that_is_not_due", ()),
    (broken.DeadOnesHoldNothing, "test_a_dead_job_holds_later_jobs_of_its_key", ()),
    (broken.NoTurns, "test_tenants_take_turns_one_job_each", ()),
    (broken.RateByCall, "test_a_rate_allows_a_burst_and_then_one_at_a_time", ()),
    (broken.PolicyStays, "test_a_policy_is_stored_until_it_is_removed", ()),
    (broken.UnguardedReplay, "test_a_job_that_is_not_dead_refuses_the_whole_call", ("done",)),
    (broken.UnguardedEdit, "test_a_stale_version_is_refused_and_nothing_is_changed", ()),
    (broken.VersionStays, "test_an_edit_raises_the_version_and_keeps_the_original_payload", ()),
    (
        broken.AuditApart,
        "test_an_operation_that_fails_changes_nothing_and_leaves_no_entry",
        ("replay",),
    ),
    (
        broken.Orphans,
        "test_dependents_of_a_job_that_will_not_run_are_cancelled_with_it",
        ("cancel",),
    ),
    (
        broken.FirstDependencyFrees,
        "test_a_job_is_blocked_until_the_last_of_its_dependencies_is_completed",
        (),
    ),
    (broken.NobodyIsWoken, "test_a_waiting_claim_is_woken_when_the_key_gets_free", ("completed",)),
    (broken.NobodyIsWoken, "test_a_waiting_claim_is_woken_when_a_place_gets_free", ("dead",)),
    (
        broken.SortedById,
        "test_the_jobs_of_a_batch_are_listed_in_the_order_of_their_enqueue",
        (),
    ),
    (broken.PayloadsGo, "test_finished_jobs_keep_their_payload", ()),
    (broken.HistoryGrows, "test_what_finished_first_goes_when_there_are_too_many_bytes", ()),
    (broken.ForeignReach, "test_nothing_outside_the_callers_reach_is_found", ()),
    (
        broken.ExceptionsForgotten,
        "test_without_a_filter_the_others_are_found",
        ({"queues": ("mail",)},),
    ),
    (broken.AnyOrder, "test_each_order_lists_what_has_a_place_in_it", (Order.LAST_FINISHED,)),
    (broken.CursorsOfAnything, "test_a_cursor_of_another_filter_or_order_is_refused", ()),
    (broken.CountsOn, "test_a_count_ends_at_its_cap", ()),
    (broken.EveryoneIsLive, "test_who_falls_silent_is_not_live", ()),
    (broken.NamesTwice, "test_a_second_live_process_of_a_name_is_refused", ()),
    (broken.LateCommands, "test_a_command_that_nobody_fetched_in_time_is_dropped", ()),
    (broken.CommandsUnaudited, "test_a_command_is_audited", ()),
    (broken.ClaimsGoOn, "test_while_out_the_next_job_is_a_probe_after_a_pause", ()),
    (broken.OutagesAreCharged, "test_a_failure_of_the_outage_is_not_charged", ("timeout", "dead")),
    (broken.OutagesLast, "test_the_success_of_a_probe_opens_it_gradually", ()),
    (broken.FactsMissing, "test_the_audit_entry_is_committed_with_the_operation", ("set_flag",)),
    (
        broken.SearchesNothing,
        "test_a_search_finds_what_matches_either_way",
        (AuditFilter(by=("ann",)), [1, 3, 5]),
    ),
    (
        broken.ExplainsTheFirst,
        "test_nothing_keeps_back_exactly_what_a_claim_of_all_returns",
        (QueuePolicy(),),
    ),
    (
        broken.ExplainsWithoutLimits,
        "test_nothing_keeps_back_exactly_what_a_claim_of_all_returns",
        (QueuePolicy(fair=True, max_in_flight=4),),
    ),
    (
        broken.ChangesOfEnqueuesAlone,
        "test_a_topic_changes_with_everything_that_happens_to_its_jobs",
        (),
    ),
    (broken.RatesAddUp, "test_rates_are_of_the_time_since_the_last_sample", ()),
    (broken.SamplesOfEveryone, "test_of_several_that_sample_one_does", ()),
    (broken.PeaksDisappear, "test_points_have_the_greatest_depth_and_mean_rates", ()),
    (
        broken.MinutesForgotten,
        "test_samples_are_kept_for_two_hours_and_minutes_for_two_days",
        (),
    ),
]


def suite_of(engine: type[MemoryEngine]) -> EngineConformance:
    class Broken(EngineConformance):
        async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
            return engine(clock=clock, options=options)

    return Broken()


def machine_of(engine: type[MemoryEngine]) -> type[EngineMachine]:
    class Broken(EngineMachine):
        async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
            return engine(clock=clock, options=options)

    return Broken


@pytest.mark.parametrize(
    ("engine", "test", "arguments"),
    NOTICED,
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_suite_notices(engine, test, arguments, monkeypatch):
    monkeypatch.setattr(fixture, "PATIENCE_SECONDS", 0.05)
    getattr(suite_of(MemoryEngine), test)(*arguments)  # a sound engine passes
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        getattr(suite_of(engine), test)(*arguments)


@pytest.mark.parametrize(
    ("engine", "steps", "chosen"),
    [
        (broken.KeysBesideEachOther, 100, None),
        (broken.DeadOnesHoldNothing, 100, None),
        (broken.UnguardedReplay, 200, None),
        (broken.UnguardedEdit, 40, None),
        (broken.VersionStays, 40, None),
        (broken.Orphans, 100, None),
        (broken.FirstDependencyFrees, 200, 2),
        (broken.NoTurns, 100, 1),
        (broken.RateByCall, 100, None),
        (broken.AuditApart, 40, None),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_machine_notices(engine, steps, chosen):
    """With runs of the length, or a seed, that finds it soonest; any does in the end."""
    machine, some = machine_of(engine), settings(FAST, stateful_step_count=steps)
    if chosen is not None:
        machine, some = seed(chosen)(machine), settings(some, max_examples=60)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=some)


def test_every_mistake_is_held_against_the_suite():
    mistakes = {
        engine
        for name, engine in vars(broken).items()
        if isinstance(engine, type)
        and issubclass(engine, MemoryEngine)
        and not name.startswith("_")
    }
    assert mistakes - {MemoryEngine} == {engine for engine, _test, _arguments in NOTICED}
