"""One struct, four doors, one name for each setting."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.engines.contract import EngineOptions
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.errors import InvalidInput
from holdfast.model.retry import RetryPolicy
from holdfast.settings import (
    ALIASES,
    DEFAULT_FILE,
    OLD_ENVIRONMENT,
    Settings,
    load,
    masked,
    queue_slots,
)
from holdfast.settings.parsers import PARSERS

ROOT = Path(__file__).parent.parent.parent
FIELDS = Settings.__struct_fields__


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the repository's own file unless it says so."""
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "settings.yaml") -> str:
    Path(name).write_text(text)
    return name


def refusal(
    text: str = "", environ: dict[str, str] | None = None, **flags: object
) -> tuple[str, str]:
    """Return the field and the problem of what load refuses."""
    with pytest.raises(InvalidInput) as refused:
        load(written(text), environ=environ or {}, flags=flags)
    return refused.value.field, refused.value.problem


# --- the defaults -----------------------------------------------------------------------------


def test_with_nothing_given_everything_is_at_its_default() -> None:
    loaded = load(environ={})
    assert loaded.settings == Settings()
    assert loaded.origins == dict.fromkeys(FIELDS, "default")
    assert loaded.warnings == ()
    assert loaded.settings.directory == "./data"
    assert loaded.settings.snapshot_directory == "data/snapshots"


def test_the_file_in_the_repository_lists_every_field_at_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load((ROOT / DEFAULT_FILE).read_text())
    assert sorted(content) == sorted(FIELDS)
    loaded = load(environ={})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {f"file {DEFAULT_FILE}"}


def test_negative_control_a_value_that_differs_is_seen() -> None:
    text = (ROOT / DEFAULT_FILE).read_text().replace("worker_count: 8", "worker_count: 9")
    assert load(written(text), environ={}).settings != Settings()


def test_defaults_agree_with_those_of_the_engine() -> None:
    defaults, engine, retry = Settings(), EngineOptions(), RetryPolicy()
    assert defaults.remember_seconds == engine.remember_seconds
    assert defaults.max_processing_seconds == engine.max_processing_seconds
    assert defaults.sync == JournalOptions().sync
    for field in ("max_attempts", "base_backoff_seconds", "max_backoff_seconds"):
        assert getattr(defaults, field) == getattr(retry, field)


def test_every_field_has_a_reader_and_every_alias_a_field() -> None:
    assert set(PARSERS) == set(FIELDS)
    assert set(ALIASES.values()) <= set(FIELDS)
    assert set(OLD_ENVIRONMENT.values()) <= set(FIELDS)
    assert not set(ALIASES) & set(FIELDS)


def test_importing_it_reads_no_yaml() -> None:
    slow = "{'yaml', 'tomllib', 'asyncio', 'difflib'}"
    check = f"import sys, holdfast.settings; assert not {slow} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


# --- doors ------------------------------------------------------------------------------------


def test_a_flag_wins_over_the_environment_and_that_over_the_file() -> None:
    path = written("worker_count: 1\nlease_seconds: 1\nmax_attempts: 1\ndrain_seconds: 5s\n")
    environ = {"HOLDFAST_WORKER_COUNT": "2", "HOLDFAST_LEASE_SECONDS": "2", "PATH": "/bin"}
    loaded = load(path, environ=environ, flags={"worker_count": 3, "run_seconds": None})
    found = loaded.settings
    assert (found.worker_count, found.lease_seconds, found.max_attempts) == (3, 2.0, 1)
    assert found.drain_seconds == 5
    assert loaded.origins["worker_count"] == "flag --worker-count"
    assert loaded.origins["lease_seconds"] == "environment HOLDFAST_LEASE_SECONDS"
    assert loaded.origins["max_attempts"] == "file settings.yaml"
    assert loaded.origins["run_seconds"] == "default"


def test_the_default_file_is_read_if_it_exists_and_none_is_named() -> None:
    Path("configs").mkdir()
    written("worker_count: 5\n", DEFAULT_FILE)
    assert load(environ={}).settings.worker_count == 5
    assert load(written(""), environ={}).settings.worker_count == 8


def test_toml_is_read_as_well() -> None:
    path = written('task_timeout = "1500ms"\nqueues = ["mail:8", "slow"]\n', "holdfast.toml")
    loaded = load(path, environ={})
    assert loaded.settings.task_timeout_seconds == 1.5
    assert loaded.settings.queues == "mail:8,slow"
    assert loaded.origins["queues"] == "file holdfast.toml"


def test_the_names_of_q8() -> None:
    path = written(
        "worker_count: 4\ntask_timeout: 4s\nsnapshot_interval: 500ms\nmax_retry: 5\n"
        "wal_path: ./q/wal.log\nsnapshot_path: ./q/snapshot.json\nmetrics_port: 9191\n"
    )
    found = load(path, environ={}).settings
    assert found.task_timeout_seconds == 4
    assert found.snapshot_interval_seconds == 0.5
    assert found.max_attempts == 5
    assert found.metrics_port == 9191
    assert (found.directory, found.snapshot_directory) == ("q", "q/snapshots")


def test_the_short_names_of_the_command_line() -> None:
    loaded = load(environ={}, flags={"workers": 2, "timeout": "5s", "snapshot-interval": "1m"})
    found = loaded.settings
    assert (found.worker_count, found.task_timeout_seconds) == (2, 5.0)
    assert found.snapshot_interval_seconds == 60
    assert loaded.origins["task_timeout_seconds"] == "flag --timeout"
    assert loaded.origins["snapshot_interval_seconds"] == "flag --snapshot-interval"


def test_the_environment_from_before() -> None:
    old = {
        "OUTBOX_WORKER_ID": "c1",
        "OUTBOX_METRICS_PORT": "9110",
        "OUTBOX_BATCH_SIZE": "50",
        "OUTBOX_POLL_INTERVAL_SECONDS": "0.2",
        "OUTBOX_LEASE_SECONDS": "30",
        "OUTBOX_MAX_ATTEMPTS": "10",
        "OUTBOX_BASE_BACKOFF_SECONDS": "0.5",
        "OUTBOX_MAX_BACKOFF_SECONDS": "30",
        "OUTBOX_RECLAIM_INTERVAL_SECONDS": "5",
        "OUTBOX_MAX_PROCESSING_SECONDS": "600",
        "OUTBOX_RUN_SECONDS": "2",
    }
    assert set(old) == set(OLD_ENVIRONMENT)
    loaded = load(written("worker_id: file\n"), environ=old)
    assert [getattr(loaded.settings, OLD_ENVIRONMENT[name]) for name in old] == [
        *("c1", 9110, 50, 0.2, 30.0, 10, 0.5, 30.0, 5.0, 600.0, 2.0)
    ]
    assert loaded.origins["worker_id"] == "environment OUTBOX_WORKER_ID"
    both = load(environ={**old, "HOLDFAST_MAX_RETRY": "7", "HOLDFAST_WORKER_ID": "new"})
    assert (both.settings.max_attempts, both.settings.worker_id) == (7, "new")
    assert both.origins["max_attempts"] == "environment HOLDFAST_MAX_RETRY"


def test_a_misspelt_name_in_the_environment_is_pointed_out() -> None:
    environ = {
        "HOLDFAST_LEASE_SECOND": "3",
        "HOLDFAST_WORKER_COUTN": "9",
        "HOLDFAST_MAX_RETRIES": "9",
        "HOLDFAST_CONCURRENCY": "9",
    }
    loaded = load(environ=environ)
    assert loaded.settings == Settings()
    assert loaded.warnings == (
        "HOLDFAST_CONCURRENCY is not a setting",
        "HOLDFAST_LEASE_SECOND is not a setting; did you mean HOLDFAST_LEASE_SECONDS?",
        "HOLDFAST_MAX_RETRIES is not a setting; did you mean HOLDFAST_MAX_RETRY?",
        "HOLDFAST_WORKER_COUTN is not a setting; did you mean HOLDFAST_WORKER_COUNT?",
    )


def test_variables_of_tools_and_platforms_are_not_pointed_out() -> None:
    names = (
        *("HOLDFAST_SERVICE_HOST", "HOLDFAST_SERVICE_PORT", "HOLDFAST_SERVICE_PORT_METRICS"),
        *("HOLDFAST_PORT", "HOLDFAST_PORT_9090_TCP", "HOLDFAST_PORT_9090_TCP_ADDR"),
        *("HOLDFAST_DB_SERVICE_HOST", "HOLDFAST_DEBUG", "HOLDFAST_WRITE_GOLDEN"),
        *("HOLDFAST_TEST_KILLS", "HOLDFAST_BENCH_POSTGRES", "OUTBOX_TABLE", "HOLDFASTER_THAN"),
    )
    assert load(environ=dict.fromkeys(names, "1")).warnings == ()


# --- what is refused --------------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    assert refusal("lease_second: 3\n") == (
        "lease_second",
        "not a setting; did you mean lease_seconds? (file settings.yaml)",
    )
    assert refusal("", None, worker_cuont=3) == (
        "worker_cuont",
        "not a setting; did you mean worker_count? (flag --worker-cuont)",
    )
    assert refusal("xyzzy: 3\n")[1] == "not a setting (file settings.yaml)"
    assert refusal("1: 3\n")[0] == "1"


def test_two_names_of_one_setting_at_one_door_are_refused() -> None:
    field, problem = refusal("max_retry: 3\nmax_attempts: 4\n")
    assert field == "max_attempts"
    assert "the same setting as max_retry" in problem
    assert "workers" in refusal(workers=1, worker_count=2)[1]


def test_a_refusal_names_the_field_the_value_and_where_it_came_from() -> None:
    environ = {"HOLDFAST_LEASE_SECONDS": "5 parsecs"}
    field, problem = refusal(environ=environ)
    assert field == "lease_seconds"
    assert problem.startswith("'5 parsecs' is not a duration")
    assert problem.endswith("(environment HOLDFAST_LEASE_SECONDS)")
    assert refusal("task_timeout: [1]\n") == (
        "task_timeout_seconds",
        "[1] is not a duration (file settings.yaml)",
    )
    field, problem = refusal(queues="mail:0")
    assert field == "queues"
    assert problem.startswith("'mail:0': 0 is not a whole number from 1")
    assert problem.endswith("(flag --queues)")


BAD: list[tuple[str, object]] = [
    *(("store", value) for value in ("", " ", 5, None, "redis://x", "postgresql://x:y", "mem:")),
    *(("wal_path", value) for value in ("", "data/", ".", "x/..", 5)),
    *(("snapshot_path", value) for value in ("", "data/", 5)),
    *(("worker_count", value) for value in (0, -1, "x", "", "1.5", 1.5, True, None, 10_001)),
    *(("processes", value) for value in (0, "two", 1_025)),
    *(("schema", value) for value in ("", "Work", "a b", "1a", "pg_work", "x" * 64, 5, None)),
    *(("only_projections", value) for value in ("", "a\nb", 5)),
    *(("projection_schema", value) for value in ("", "Work", "a b", "pg_work", 5, None)),
    *(("max_connections", value) for value in (0, 1_001, "many")),
    *(("statement_timeout_seconds", value) for value in (0, "2d", None)),
    *(("wake", value) for value in ("never", None)),
    *(("listen_url", value) for value in ("./data", "memory:", "redis://h/0", 5)),
    *(("queues", value) for value in ("", ",", "mail:", "mail:x", "mail:0", "a,a", 5, [1])),
    *(("worker_id", value) for value in ("", 7, "a\nb", "x" * 256)),
    *(("default_task", value) for value in ("", None)),
    *(("projections", value) for value in ("", ",", "a.yaml,,b", "nul\0.yaml", 5, [1])),
    *(("chronicle", value) for value in ("maybe", 1, None)),
    *(("catalog", value) for value in ("", ",", "a.yaml,,b", "nul\0.yaml", 5, [1])),
    *(("batch_size", value) for value in (0, -1, 10_001, "many", 1.5)),
    *(("poll_interval_seconds", value) for value in (0, 0.0001, 3_601, None, "often")),
    *(("task_timeout_seconds", value) for value in (0, "0s", -1, "-1s", "3 s", "", None, True)),
    *(("lease_seconds", value) for value in (0, 3_600.1, "2h", "inf", "nan", 10**400)),
    *(("max_processing_seconds", value) for value in (0, [3])),
    *(("outage_max_seconds", value) for value in (0, "soon")),
    *(("reclaim_interval_seconds", value) for value in (0, "often")),
    *(("max_attempts", value) for value in (0, 1_000_001, "3.0")),
    *(("base_backoff_seconds", value) for value in (-0.1, "x")),
    *(("max_backoff_seconds", value) for value in (-0.1, None)),
    *(("backoff_jitter", value) for value in (-0.1, 1.1, "half", "nan", None, True)),
    *(("remember_seconds", value) for value in (0, 1e300)),
    *(("max_history_bytes", value) for value in (0, 65_535, "1 GB", "1.5GiB", "63KiB")),
    *(("keep_log_bytes", value) for value in (0, -1, "24h")),
    *(("keep_payload", value) for value in ("maybe", 1, None)),
    *(("snapshot_interval_seconds", value) for value in (0, "")),
    *(("sync", value) for value in ("never", True, None, 0)),
    *(("history", value) for value in ("never", True, None, 0)),
    *(("drain_seconds", value) for value in (-1, None)),
    *(("run_seconds", value) for value in (0, "")),
    *(("stall_seconds", value) for value in (0, "soon")),
    *(("memory_limit_bytes", value) for value in (512, "512MB", 0)),
    *(("cpu_limit_seconds", value) for value in (0, 0.5, "2d")),
    *(("metrics_host", value) for value in ("", None, "example.org", "10.0.0")),
    *(("metrics_port", value) for value in (-1, 65_536, "http", True, "")),
    *(("metrics_allowed_hosts", value) for value in ("a b", "a,,b", "a:9090", "*.a", "/", 5)),
    *(("metrics_token_file", value) for value in ("", "a\0b", 5)),
    *(("metrics_cert_file", value) for value in ("", "a\0b", 5)),
    *(("metrics_key_file", value) for value in ("", "a\0b", 5)),
    *(("api_key_file", value) for value in ("", "a\0b", 5)),
    *(("api_ca_file", value) for value in ("", "a\0b", 5)),
    *(("api_host", value) for value in ("", None, "example.org", "10.0.0")),
    *(("api_port", value) for value in (-1, 65_536, "http", True, "")),
    *(("api_allowed_hosts", value) for value in ("a b", "a,,b", "a:9090", "*.a", "/", 5)),
    *(("api_tls_cert_file", value) for value in ("", "a\0b", 5)),
    *(("api_tls_key_file", value) for value in ("", "a\0b", 5)),
    *(
        (field, value)
        for field in ("api_oidc_issuer", "api_oidc_jwks")
        for value in ("http://a.org", "https://", "https://u:p@a.org", "https://a b", "", 5)
    ),
    *(("api_statement_timeout_seconds", value) for value in (0, "2d", None)),
    *(("api_oidc_audience", value) for value in ("", "a\0b", 5)),
    *(
        ("api_oidc_roles", value)
        for value in ("", "ops", "=admin", "a=root", "a=viewer,a=admin", 5)
    ),
    *(("api_oidc_roles_claim", value) for value in ("", None, 5)),
    *(("api_oidc_tenants_claim", value) for value in ("", None, 5)),
    *(("api_oidc_scopes_claim", value) for value in ("", 5)),
    *(("api_trusted_proxies", value) for value in ("", "10.0.0.1/8", "a.org", "1.2.3.4,,", 5)),
    *(("api_key_rate", value) for value in (-1, 100_000_001, "many", None, True, "")),
    *(("api_tenant_rate", value) for value in (-1, 100_000_001, "many", None, True, "")),
    *(("api_tenant_jobs", value) for value in (-1, 1_000_001, "many", None, True, "")),
    *(("api_metrics_token_file", value) for value in ("", "a\0b", 5)),
    *(
        ("store", value)
        for value in (
            *("http://10.0.0.1:8080", "http://store.example.org", "https://", "https://a:x"),
            *("https://key@host", "https://host?x=1", "https://host/#x", "https://a b"),
        )
    ),
    *(("log_level", value) for value in ("loud", 10)),
    *(("log_format", value) for value in ("xml", "")),
    ("event_loop", "trio"),
    *(("flags", value) for value in ("a", "a=", "=on", "a=on,a=off", 5, {"a": 1}, {1: True})),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_what_is_out_of_range_is_refused_by_the_name_of_its_field(
    field: str, value: object
) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(InvalidInput) as refused:
        Settings(**fields)
    assert refused.value.field == field
    if value is not None:
        with pytest.raises(InvalidInput) as refused:
            load(environ={}, flags=fields)
        assert refused.value.field == field
        assert masked(repr(value)) in refused.value.problem
        assert refused.value.problem.endswith(f"(flag --{field.replace('_', '-')})")


def test_every_field_has_a_bad_value_above() -> None:
    assert {field for field, _ in BAD} == set(FIELDS)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("missing.yaml", None, "No such file"),
        ("settings.ini", "a=1", "does not end in .yaml, .yml, .toml"),
        ("bad.yaml", "a: [1", "cannot be read"),
        ("two.yaml", "a: 1\n---\nb: 2\n", "cannot be read"),
        ("list.yaml", "- 1\n", "not a list of settings"),
        ("twice.yaml", "workers: 1\nworkers: 2\n", "workers is given twice"),
        ("unsafe.yaml", "store: !!python/name:os.system\n", "cannot be read"),
        ("date.yaml", "store: 2027-13-45\n", "cannot be read"),
        ("bad.toml", "a = \n", "cannot be read"),
        ("twice.toml", "workers = 1\nworkers = 2\n", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(name: str, text: str | None, says: str) -> None:
    if text is not None:
        written(text, name)
    with pytest.raises(InvalidInput, match=says) as refused:
        load(name, environ={})
    assert refused.value.field == "config"
    assert name in refused.value.problem


def test_an_empty_file_says_nothing() -> None:
    assert load(written(""), environ={}).settings == Settings()
    assert load(written("# nothing\n"), environ={}).settings == Settings()
    assert load(written("", "empty.toml"), environ={}).settings == Settings()


# --- words that mean nothing, or off ----------------------------------------------------------


@pytest.mark.parametrize("off", ["off", "none", "OFF", "null", "no", "~", ""])
def test_metrics_can_be_turned_off_in_a_file(off: str) -> None:
    assert load(written(f"metrics_port: {off}\n"), environ={}).settings.metrics_port is None


def test_metrics_can_be_turned_off_elsewhere_and_zero_is_a_free_port() -> None:
    assert load(environ={"HOLDFAST_METRICS_PORT": "off"}).settings.metrics_port is None
    assert load(environ={}, flags={"metrics_port": "off"}).settings.metrics_port is None
    assert load(environ={"HOLDFAST_METRICS_PORT": "0"}).settings.metrics_port == 0


def test_yaml_reads_off_as_false_and_sync_off_means_off() -> None:
    assert load(written("sync: off\n"), environ={}).settings.sync == "off"
    assert load(environ={"HOLDFAST_SYNC": "Interval"}).settings.sync == "interval"


# --- places -----------------------------------------------------------------------------------


def places(text: str = "", environ: dict[str, str] | None = None, **flags: object) -> list[object]:
    found = load(written(text), environ=environ or {}, flags=flags).settings
    assert found.directory == (None if found.store == "memory:" else found.store)
    return [found.store, found.wal_path, found.snapshot_path, found.snapshot_directory]


def test_the_two_paths_follow_a_store() -> None:
    followed = ["/x", "/x/wal.log", "/x/snapshot.json", "/x/snapshots"]
    assert places(store="/x") == followed
    assert places((ROOT / DEFAULT_FILE).read_text(), {"HOLDFAST_STORE": "/x"}) == followed
    assert places("store: /x\nwal_path: ./data/wal.log\n") == followed
    assert places("store: /x\nwal_path: null\nsnapshot_path: null\n") == followed
    direct = Settings(store="/x")
    assert [direct.store, direct.wal_path, direct.snapshot_path] == followed[:3]


def test_wal_path_places_the_store() -> None:
    assert places("wal_path: /x/wal.log\n")[0] == "/x"
    assert places("wal_path: wal.log\n")[0] == "."
    assert places("store: ./data\nwal_path: /x/any.name\n") == [
        *("/x", "/x/any.name", "/x/snapshot.json", "/x/snapshots")
    ]
    assert places("store: /y\n", {"HOLDFAST_WAL_PATH": "/x/wal.log"})[0] == "/x"
    assert Settings(wal_path="/x/wal.log").store == "/x"


def test_snapshot_path_places_the_snapshots() -> None:
    assert places("snapshot_path: /ssd/snapshot.json\n") == [
        *("./data", "./data/wal.log", "/ssd/snapshot.json", "/ssd/snapshots")
    ]
    assert places("store: /x\nsnapshot_path: /ssd/s.json\n")[3] == "/ssd/snapshots"
    environ = {"HOLDFAST_STORE": "/x", "HOLDFAST_SNAPSHOT_PATH": "./data/snapshot.json"}
    assert places("", environ)[3] == "data/snapshots"


def test_the_place_of_the_snapshots_is_the_one_that_a_disk_makes(tmp_path: Path) -> None:
    found = Settings(store=str(tmp_path / "s"))
    assert found.directory is not None
    plain = LocalDisk(found.directory)
    assert LocalDisk(found.directory, snapshots=found.snapshot_directory).snapshots == (
        plain.snapshots
    )


def test_the_stronger_door_places_the_store() -> None:
    text = "store: /y\nwal_path: /y/wal.log\nsnapshot_path: /ssd/s.json\n"
    followed = ["/x", "/x/wal.log", "/x/snapshot.json", "/x/snapshots"]
    assert places(text, {"HOLDFAST_STORE": "/x"}) == followed
    assert places(text, {"HOLDFAST_WAL_PATH": "/x/wal.log"}) == followed
    assert places(text, {"HOLDFAST_WAL_PATH": "/z/wal.log"}, store="/x") == followed
    assert places(text, {"HOLDFAST_STORE": "./data"})[3] == "data/snapshots"
    loaded = load(written(text), environ={"HOLDFAST_STORE": "/x"})
    for field in ("store", "wal_path", "snapshot_path"):
        assert loaded.origins[field] == "environment HOLDFAST_STORE"


def test_at_one_door_the_places_must_agree() -> None:
    assert places("store: /x/\nwal_path: /x/wal.log\n")[0] == "/x/"
    field, problem = refusal("store: /y\nwal_path: /x/wal.log\n")
    assert field == "wal_path"
    assert problem == (
        "'/x/wal.log' is not in the store '/y': give one of the two (file settings.yaml)"
    )
    environ = {"HOLDFAST_STORE": "./data", "HOLDFAST_WAL_PATH": "/x/wal.log"}
    assert refusal(environ=environ)[0] == "wal_path"
    environ = {"HOLDFAST_STORE": "/x", "HOLDFAST_WAL_PATH": "./data/wal.log"}
    assert refusal(environ=environ)[0] == "wal_path"
    with pytest.raises(InvalidInput, match="wal_path"):
        Settings(store="/y", wal_path="/x/wal.log")


def test_memory_has_no_places() -> None:
    assert places(store="memory:") == ["memory:", None, None, None]
    assert places("wal_path: /x/wal.log\n", store="memory:") == ["memory:", None, None, None]
    for name in ("wal_path", "snapshot_path"):
        field, problem = refusal(f"store: 'memory:'\n{name}: /x/y.z\n")
        assert field == name
        assert "no effect with store memory:" in problem


# --- queues -----------------------------------------------------------------------------------


def test_queue_slots() -> None:
    assert queue_slots("mail:8,slow:2") == {"mail": 8, "slow": 2}
    assert queue_slots(" default , mail : 3 ") == {"default": None, "mail": 3}
    assert queue_slots("a:b:3") == {"a:b": 3}
    for bad in ("", "a,,b", "a:b", "a:", ":3", "a,a:1", "a:10001", "a:-1", "a:1.5"):
        with pytest.raises(InvalidInput) as refused:
            queue_slots(bad)
        assert refused.value.field == "queues"


@given(
    st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=9),
        st.none() | st.integers(1, 10_000),
        min_size=1,
    )
)
def test_queue_slots_come_back(slots: dict[str, int | None]) -> None:
    text = ",".join(name if count is None else f"{name}:{count}" for name, count in slots.items())
    assert queue_slots(text) == slots


# --- anything at all --------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


@hypothesis_settings(max_examples=500)
@given(field=st.sampled_from(FIELDS), value=ANYTHING)
def test_any_value_is_taken_or_refused_and_what_is_taken_is_taken_again(
    field: str, value: object
) -> None:
    try:
        found = load(environ={}, flags={field: value}).settings
    except InvalidInput:
        return
    again = Settings(**{name: getattr(found, name) for name in FIELDS})
    assert again == found
