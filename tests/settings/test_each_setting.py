"""Every setting changes something that can be seen: one entry in the table for each."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from holdfast.engines.contract import OWN_SLOT_PREFIX
from holdfast.settings import Settings
from tests.api.issuer import ISSUER

from . import observing as see
from . import on_server

FIELDS = Settings.__struct_fields__


class Effect(NamedTuple):
    """What is seen with the default, and with this value of the setting."""

    look: Callable[..., object]
    value: object
    by_default: object
    then: object


GRANTED = ("operator",), ("acme",), ()
PLACES = ["data", "data/log", "data/snapshots"]
EFFECTS: dict[str, Effect] = {
    "store": Effect(see.made, "s", PLACES, ["s", "s/log", "s/snapshots"]),
    "api_key_file": Effect(see.remote_key, "key", "api_key_file", "0123456789abcdef"),
    "api_ca_file": Effect(see.trusts_first, "first.crt", False, True),
    "schema": Effect(on_server.schemas_with_work, "work", ["holdfast"], ["work"]),
    "projection_schema": Effect(on_server.schemas_with_tables, "shown", ["public"], ["shown"]),
    "max_connections": Effect(on_server.connections_at_once, 3, 8, 3),
    "statement_timeout_seconds": Effect(on_server.statement_timeout, "5s", "30s", "5s"),
    "wake": Effect(on_server.listens, "poll", "here", "nowhere"),
    "listen_url": Effect(on_server.listens, "postgresql://other/db", "here", "elsewhere"),
    "wal_path": Effect(see.made, "s/wal.log", PLACES, ["s", "s/log", "s/snapshots"]),
    "snapshot_path": Effect(see.made, "s/x.json", PLACES, ["data", "data/log", "s", "s/snapshots"]),
    "worker_count": Effect(see.at_once, 3, 8, 3),
    "processes": Effect(lambda **said: len(see.worker_names(**said)), 2, 1, 2),
    "queues": Effect(see.queues_served, "slow", ["mail", "slow"], ["slow"]),
    "worker_id": Effect(
        lambda **said: see.worker_names(**said) == [f"{OWN_SLOT_PREFIX}c1"], "c1", False, True
    ),
    "catalog": Effect(see.event_types, "events.yaml", [], ["book.read"]),
    "projections": Effect(see.projections, "views.yaml", ["chronicle"], ["chronicle", "titles"]),
    "only_projections": Effect(
        see.projections_applied, "titles", ["chronicle", "titles"], ["titles"]
    ),
    "chronicle": Effect(see.projections, "off", ["chronicle"], []),
    "default_task": Effect(
        see.task_of_a_job_that_names_none, "other", "holdfast.simulate", "other"
    ),
    "batch_size": Effect(see.largest_claim, 2, 8, 2),
    "poll_interval_seconds": Effect(see.claims_in_ten_seconds, "200ms", 11, 51),
    "task_timeout_seconds": Effect(see.timed_out_after, 7, 600.0, 7.0),
    "lease_seconds": Effect(see.held_for, 45, 30.0, 45.0),
    "max_processing_seconds": Effect(see.lease_of, 5, 30.0, 5.0),
    "reclaim_interval_seconds": Effect(
        lambda **said: see.next_step_of("_lease_loop", **said), 0.25, 1.0, 0.25
    ),
    "max_attempts": Effect(see.attempts_of_a_new_job, 7, 20, 7),
    "base_backoff_seconds": Effect(see.waits_after_a_failure, 0, True, False),
    "max_backoff_seconds": Effect(see.waits_after_a_failure, 0, True, False),
    "backoff_jitter": Effect(see.first_waits_differ, 0, True, False),
    "outage_max_seconds": Effect(see.attempts_charged_in_an_outage, "1us", 0, 1),
    "remember_seconds": Effect(see.id_is_free_again, "50ms", False, True),
    "max_history_bytes": Effect(see.finished_jobs_kept, 65_536, 8, 2),
    "keep_payload": Effect(see.payload_of_a_finished_job, "off", b'{"n":1}', b""),
    "snapshot_interval_seconds": Effect(
        lambda **said: see.next_step_of("_store.snapshots", **said), "10s", 2.0, 10.0
    ),
    "keep_log_bytes": Effect(see.segments_kept, "1MiB", 0, 3),
    "sync": Effect(see.syncs, "off", True, False),
    "history": Effect(see.starts_without_history, "anew", False, True),
    "drain_seconds": Effect(see.state_after_a_stop, 0, "completed", "pending"),
    "run_seconds": Effect(see.ends_by_itself, "50ms", False, True),
    "stall_seconds": Effect(see.notices_a_hanging_task, "300ms", False, True),
    "event_loop": Effect(see.event_loop, "uvloop", ["asyncio"] * 2, ["uvloop"] * 2),
    "memory_limit_bytes": Effect(
        lambda **said: see.end_of_a_task("fill", {"megabytes": 600}, **said),
        *(512 << 20, "completed", "dead"),
    ),
    "cpu_limit_seconds": Effect(
        lambda **said: see.end_of_a_task("spin", {"seconds": 2.5}, **said), 1, "completed", "dead"
    ),
    "metrics_host": Effect(
        lambda **said: see.metrics_at(metrics_port=0, **said),
        *("127.0.0.2", ["http://127.0.0.1"], ["http://127.0.0.2"]),
    ),
    "metrics_port": Effect(lambda **said: len(see.metrics_at(**said)), 0, 0, 1),
    "metrics_allowed_hosts": Effect(
        lambda **said: see.metrics_answer("m.example.org", **said), ".example.org", 421, 200
    ),
    "metrics_token_file": Effect(see.metrics_answer, "token", 200, 401),
    "metrics_cert_file": Effect(
        lambda **said: see.metrics_answer(metrics_key_file="first.key", **said),
        *("first.crt", 200, 1_200),
    ),
    "metrics_key_file": Effect(
        lambda **said: see.metrics_answer(metrics_cert_file="first.crt", **said),
        *("first.key", "metrics_cert_file", 1_200),
    ),
    "api_host": Effect(lambda **said: see.api(**said).host, "::1", "127.0.0.1", "::1"),
    "api_port": Effect(see.serves_api, 0, False, True),
    "api_allowed_hosts": Effect(
        lambda **said: see.api(**said).allowed_hosts, "a.org,.svc", ("",), ("a.org", ".svc")
    ),
    "api_tls_cert_file": Effect(
        lambda **said: see.api(api_tls_key_file="first.key", **said).cert_file,
        *("first.crt", "", "first.crt"),
    ),
    "api_tls_key_file": Effect(
        lambda **said: see.api(api_tls_cert_file="first.crt", **said).key_file,
        *("first.key", "first.crt", "first.key"),
    ),
    "api_trusted_proxies": Effect(
        lambda **said: see.api(**said).trusted_proxies, "10.0.0.1,::1", ("",), ("10.0.0.1", "::1")
    ),
    "api_key_rate": Effect(lambda **said: see.api(**said).limits.key_rate, 7, 60_000, 7),
    "api_tenant_rate": Effect(lambda **said: see.api(**said).limits.tenant_rate, 7, 120_000, 7),
    "api_tenant_jobs": Effect(lambda **said: see.api(**said).limits.max_jobs, 7, 0, 7),
    "api_metrics_token_file": Effect(
        lambda **said: see.api(**said).metrics_token_file, "token", "", "token"
    ),
    "api_statement_timeout_seconds": Effect(on_server.looking_timeout, "5s", "2s", "5s"),
    "api_oidc_issuer": Effect(
        lambda **said: see.token_grants("api_oidc_issuer", **said), ISSUER, None, GRANTED
    ),
    "api_oidc_audience": Effect(
        lambda **said: see.token_grants("api_oidc_audience", **said),
        *("holdfast", "it needs api_oidc_audience too", GRANTED),
    ),
    "api_oidc_jwks": Effect(
        lambda **said: see.token_grants("api_oidc_jwks", **said),
        *("jwks.json", "it needs api_oidc_jwks too", GRANTED),
    ),
    "api_oidc_roles": Effect(
        lambda **said: see.token_grants("api_oidc_roles", **said),
        *("ops=operator", "it needs api_oidc_roles too", GRANTED),
    ),
    "api_oidc_roles_claim": Effect(
        lambda **said: see.token_grants("", **said),
        *("groups", GRANTED, (("responder",), ("acme",), ())),
    ),
    "api_oidc_tenants_claim": Effect(
        lambda **said: see.token_grants("", **said),
        *("libraries", GRANTED, (("operator",), ("beta",), ())),
    ),
    "api_oidc_scopes_claim": Effect(
        lambda **said: see.token_grants("", **said),
        *("areas", GRANTED, (("operator",), ("acme",), ("library:42",))),
    ),
    "log_level": Effect(lambda **said: bool(see.logged(**said)), "error", True, False),
    "log_format": Effect(lambda **said: set(see.logged(**said)), "console", {"json"}, {"text"}),
    "flags": Effect(see.flags_of_the_store, "fast=on", {}, {"fast": True}),
}


def test_every_setting_has_an_entry_and_every_entry_shows_a_difference() -> None:
    assert list(EFFECTS) == list(FIELDS)
    for field, effect in EFFECTS.items():
        assert effect.by_default != effect.then, field


@pytest.mark.parametrize("field", FIELDS)
def test_a_setting_changes_something(
    field: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    effect = EFFECTS[field]
    more: dict[str, object] = {"monkeypatch": monkeypatch} if effect.look is see.syncs else {}
    if effect.look.__module__ == on_server.__name__:
        more["server"] = request.getfixturevalue("server18")
    monkeypatch.chdir(tmp_path_factory.mktemp("default"))
    assert effect.look(**more) == effect.by_default, "by default"
    monkeypatch.chdir(tmp_path_factory.mktemp("changed"))
    assert effect.look(**more, **{field: effect.value}) == effect.then, f"{field}={effect.value}"
