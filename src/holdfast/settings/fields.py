"""All settings: one struct that checks every field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.job import DEFAULT_TASK_TIMEOUT_SECONDS
from holdfast.model.outage import DEFAULT_OUTAGE_MAX_SECONDS
from holdfast.model.redaction import masked
from holdfast.model.retry import (
    DEFAULT_BASE_BACKOFF_SECONDS,
    DEFAULT_JITTER,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_BACKOFF_SECONDS,
)
from holdfast.model.schema_name import DEFAULT_PROJECTION_SCHEMA, DEFAULT_SCHEMA

from .parsers import PARSERS, EventLoop, HistoryName, LogFormat, LogLevel, SyncName, WakeName
from .store_url import DEFAULT_PATHS, is_directory, is_remote, is_server, resolve_paths
from .validation import conflicts, within_cap


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. Creating one checks every field; ``InvalidInput`` names the bad one.

    Relative paths are relative to the working directory, even in a file. Durations are seconds, or
    text such as ``500ms``, ``3s`` and ``1h30m``.
    """

    store: str = DEFAULT_PATHS["store"]
    """Where jobs are stored: a directory, ``postgresql://user@host/database``, ``https://host:port``
    of the API of a store on another machine, or ``memory:``, which ends with the process."""
    api_key_file: str | None = None
    """A file with the key for a store at ``https://…``; None: ``HOLDFAST_API_KEY`` has it."""
    api_ca_file: str | None = None
    """The certificates to trust for a store at ``https://…``, in PEM; None: those of the system."""
    schema: str = DEFAULT_SCHEMA
    """The schema of a PostgreSQL store."""
    projection_schema: str = DEFAULT_PROJECTION_SCHEMA
    """The schema of the tables and views of projections on a PostgreSQL server."""
    max_connections: int = 8
    """The most connections per process to a PostgreSQL server, besides one that listens and up to
    four for the tables of projections."""
    statement_timeout_seconds: float = 30.0
    """The timeout of a statement on a PostgreSQL server."""
    wake: WakeName = "notify"
    """How workers learn of new jobs on a PostgreSQL server: at once by LISTEN/NOTIFY (``notify``),
    or by a look every poll_interval_seconds (``poll``)."""
    listen_url: str | None = None
    """The URL for LISTEN/NOTIFY, if not the store's own: directly to the server, because a pooler
    may drop notifications."""
    wal_path: str | None = DEFAULT_PATHS["wal_path"]
    """Another way to name the store: the log is in ``log/`` in the directory of this path. The file
    name itself is not used. None if the store has no log."""
    snapshot_path: str | None = DEFAULT_PATHS["snapshot_path"]
    """Snapshots are in ``snapshots/`` in the directory of this path; it need not be the log's. The
    file name itself is not used. Two stores must not share the directory. None if the store has
    no snapshots."""
    worker_count: int = 8
    """How many jobs run at once."""
    processes: int = 1
    """How many worker processes there are."""
    queues: str | None = None
    """The queues to serve and the most slots of each, such as ``mail:8,slow:2``; None: every
    queue of a registered task. See ``queue_slots``."""
    worker_id: str | None = None
    """The name of this worker; None: a generated one."""
    catalog: str | None = None
    """The catalog files of event types: YAML files or directories of them, separated by commas;
    None: ``./catalog.yaml``, if it exists."""
    projections: str | None = None
    """The files of projections that are a mapping alone: YAML files or directories of them,
    separated by commas; None: ``./projections.yaml``, if it exists."""
    only_projections: str | None = None
    """The projections that this daemon applies, separated by commas, and nothing else; None: all of
    them, and every task."""
    chronicle: bool = True
    """Whether events are projected to the chronicle, the history for people."""
    default_task: str = "holdfast.simulate"
    """The task of a job that names none."""
    batch_size: int | None = None
    """The most jobs per claim; None: as many as there are free slots."""
    poll_interval_seconds: float = 1.0
    """How long a claim waits for work before it is sent again. New jobs end the wait at once; a new
    queue is seen by the next claim."""
    task_timeout_seconds: float = DEFAULT_TASK_TIMEOUT_SECONDS
    """How long a task may run, unless it sets its own timeout. If only max_processing_seconds is
    set, and is too short for this default, it is nine tenths of that."""
    lease_seconds: float = 30.0
    """How long a claim lasts without a heartbeat."""
    max_processing_seconds: float | None = None
    """How long a job may stay claimed, even with heartbeats; None: the timeout of its task and a
    minute."""
    reclaim_interval_seconds: float = 1.0
    """How often to look for expired leases."""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    """The total number of runs before a job is dead."""
    base_backoff_seconds: float = DEFAULT_BASE_BACKOFF_SECONDS
    """The longest wait after the first failure; it doubles with each failure."""
    max_backoff_seconds: float = DEFAULT_MAX_BACKOFF_SECONDS
    """The longest wait after any failure."""
    backoff_jitter: float = DEFAULT_JITTER
    """The share of a wait that is random: with 0.5 a wait is never below half of its length, 0 is
    no jitter, 1 is full jitter."""
    outage_max_seconds: float = DEFAULT_OUTAGE_MAX_SECONDS
    """For how long failures cost jobs no attempt while what they need is out."""
    remember_seconds: float = 86_400.0
    """How long finished jobs are kept and their ids refused."""
    max_history_bytes: int = 1 << 30
    """About how many bytes of finished jobs are kept: beyond that, those that finished first go,
    and their ids with them, before remember_seconds. Dead letters and the audit stay."""
    keep_payload: bool = True
    """Whether finished jobs keep their payload, in queues whose policy does not say."""
    snapshot_interval_seconds: float | None = None
    """How often to write a snapshot, if anything changed; None: when the log has grown enough for
    one to pay off."""
    keep_log_bytes: int | None = None
    """How much of the log to keep for debugging after snapshots have made it needless; None or
    ``off``: nothing. ``holdfast journal dump`` and ``verify`` read it."""
    sync: SyncName = "always"
    """When acknowledged jobs are on stable storage: at once (``always``), within an ``interval``,
    or when the system writes them (``off``)."""
    history: HistoryName = "required"
    """If the history file is damaged or missing: refuse to start (``required``), or begin a new
    one (``anew``)."""
    drain_seconds: float = 30.0
    """How long a stop waits for running jobs."""
    run_seconds: float | None = None
    """Stop this long after the start; None: never."""
    stall_seconds: float | None = 30.0
    """How long a task may block the event loop before the process restarts; None: forever."""
    event_loop: EventLoop = "asyncio"
    """The event loop of the daemon's processes: Python's own, or the faster ``uvloop``."""
    memory_limit_bytes: int | None = None
    """The memory limit of a task in a child process; None: no limit."""
    cpu_limit_seconds: float | None = None
    """How much processor time an attempt in a child process may take; None: no limit."""
    metrics_host: str = "127.0.0.1"
    """The address of the metrics server: an address of this machine, or 0.0.0.0 or :: for all."""
    metrics_port: int | None = 9090
    """The port of the metrics server; 0: any free port, None or ``off``: no server."""
    metrics_allowed_hosts: str | None = None
    """The names under which the metrics server may be asked, separated by commas, beside addresses,
    ``localhost`` and the name of this machine; ``.example.org``: all below it, ``*``: any."""
    metrics_token_file: str | None = None
    """A file with the token that ``/metrics`` needs (``Authorization: Bearer``); None: no token."""
    metrics_cert_file: str | None = None
    """The certificate of the metrics server, in PEM, with its chain; None: no TLS."""
    metrics_key_file: str | None = None
    """The key of the certificate, in PEM; None: it is in the file of the certificate."""
    api_host: str = "127.0.0.1"
    """The address of the HTTP API: an address of this machine, or 0.0.0.0 or :: for all."""
    api_port: int | None = None
    """The port of the HTTP API, which a process beside the daemon serves; 0: any free port, None or
    ``off``: no API."""
    api_allowed_hosts: str | None = None
    """The names under which the API may be asked, separated by commas, beside addresses,
    ``localhost`` and the name of this machine; ``.example.org``: all below it, ``*``: any."""
    api_tls_cert_file: str | None = None
    """The certificate of the API, in PEM, with its chain; None: no TLS."""
    api_tls_key_file: str | None = None
    """The key of that certificate, in PEM; None: it is in the file of the certificate."""
    api_trusted_proxies: str | None = None
    """The addresses or networks of proxies before the API, separated by commas: what they say of
    who asks (``X-Forwarded-For``) is believed. None: nobody is."""
    api_key_rate: int = 60_000
    """How many requests a minute a key may send to the API, if it has no rate of its own; 0: any
    number."""
    api_tenant_rate: int = 120_000
    """How many requests a minute the keys of a tenant may send together; 0: any number."""
    api_tenant_jobs: int = 0
    """How many unfinished jobs a tenant may have before the API creates no more; 0: any number."""
    api_metrics_token_file: str | None = None
    """A file with a token that ``/metrics`` of the API takes, beside keys that may see all counts;
    None: such keys alone."""
    api_statement_timeout_seconds: float = 2.0
    """The timeout of a statement on a PostgreSQL server that only reads for a GET of the API."""
    api_oidc_issuer: str | None = None
    """The ``iss`` of the tokens that the API takes beside keys; None: it takes none. It needs
    api_oidc_audience, api_oidc_jwks and api_oidc_roles, and the extra ``oidc``."""
    api_oidc_audience: str | None = None
    """The ``aud`` that a token must have."""
    api_oidc_jwks: str | None = None
    """The public keys of the issuer: a file, or an https address."""
    api_oidc_roles: str | None = None
    """Which value of the claim of roles gives which role, such as ``ops=operator,sre=responder``;
    other values give none."""
    api_oidc_roles_claim: str = "roles"
    """The claim of roles: its name, or a path such as ``realm_access.roles``."""
    api_oidc_tenants_claim: str = "tenants"
    """The claim of tenants; ``*`` in it: all of them. A token without it is refused."""
    api_oidc_scopes_claim: str | None = None
    """The claim of scopes inside a tenant; ``*`` in it: all of them. A token without it is refused.
    None: every token reaches all scopes of its tenants."""
    log_level: LogLevel = "info"
    """The lowest level that is logged."""
    log_format: LogFormat = "auto"
    """The log format; ``auto``: console on a terminal, json elsewhere."""
    flags: Mapping[str, bool] = {}
    """Feature flags to set when the daemon starts, and when a reload changes this. Other flags are
    left as they are."""

    def __post_init__(self) -> None:
        for field, read in PARSERS.items():
            force_setattr(self, field, read(field, getattr(self, field)))
        force_setattr(self, "task_timeout_seconds", within_cap(self))
        for field, value in resolve_paths(self.store, self.wal_path, self.snapshot_path).items():
            force_setattr(self, field, value)
        for conflict in conflicts(self):
            raise conflict

    @property
    def on_server(self) -> bool:
        """Whether the store is on a server, which many machines share."""
        return is_server(self.store)

    @property
    def remote(self) -> bool:
        """Whether the store is reached over the API of another machine."""
        return is_remote(self.store)

    @property
    def directory(self) -> str | None:
        """The directory of the journal; None for other stores."""
        return self.store if is_directory(self.store) else None

    @property
    def snapshot_directory(self) -> str | None:
        """The directory of the snapshots; None if the store has none."""
        if self.snapshot_path is None:
            return None
        return str(PurePath(self.snapshot_path).parent / "snapshots")

    @property
    def store_shown(self) -> str:
        """The store without its password."""
        return masked(self.store)

    def __rich_repr__(self) -> list[tuple[str, object]]:
        values = [(field, getattr(self, field)) for field in self.__struct_fields__]
        return [
            (field, masked(value) if isinstance(value, str) else value) for field, value in values
        ]

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={value!r}" for field, value in self.__rich_repr__())
        return f"{type(self).__name__}({fields})"


_AT_DEFAULT = Settings()
DEFAULTS: Mapping[str, object] = {
    field: getattr(_AT_DEFAULT, field) for field in Settings.__struct_fields__
}
