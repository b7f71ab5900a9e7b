"""Settings that are valid alone but conflict with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.model.durations import format_seconds
from holdfast.model.errors import InvalidInput
from holdfast.model.redaction import masked

from .parsers import is_loopback, queue_slots

if TYPE_CHECKING:
    from .fields import Settings

_NO_LONGER_THAN = (
    (
        "base_backoff_seconds",
        "max_backoff_seconds",
        "the first wait exceeds the longest",
    ),
    ("lease_seconds", "max_processing_seconds", "a job would be reclaimed before its lease ends"),
    ("task_timeout_seconds", "max_processing_seconds", "no task could reach its timeout"),
)
"""A setting, the one that it must not exceed, and the consequence."""
_OF_METRICS = (
    "metrics_host",
    "metrics_allowed_hosts",
    "metrics_token_file",
    "metrics_cert_file",
    "metrics_key_file",
)
_OF_API = (
    "api_host",
    "api_allowed_hosts",
    "api_tls_cert_file",
    "api_tls_key_file",
    "api_trusted_proxies",
    "api_key_rate",
    "api_tenant_rate",
    "api_tenant_jobs",
    "api_metrics_token_file",
)
_OF_OIDC = (
    "api_oidc_audience",
    "api_oidc_jwks",
    "api_oidc_roles",
    "api_oidc_roles_claim",
    "api_oidc_tenants_claim",
    "api_oidc_scopes_claim",
)
_OF_REMOTE = ("api_key_file", "api_ca_file")
_TIMEOUT_SHARE_OF_CAP = 0.9


def conflicts(settings: Settings) -> Iterator[InvalidInput]:
    """Return the conflicts. A setting at its default never conflicts.

    So setting only ``max_backoff_seconds`` to half a second gives short waits.
    """
    for field, other, meaning in _NO_LONGER_THAN:
        value, most = getattr(settings, field), getattr(settings, other)
        if most is not None and value > most and value != _default(settings, field):
            yield InvalidInput(
                field,
                f"{format_seconds(value)} is more than {other}, which is {format_seconds(most)}: "
                f"{meaning}",
            )


def doubtful(settings: Settings) -> Iterator[str]:
    """Return a warning for each valid setting that is probably a mistake."""
    if settings.worker_count != _default(settings, "worker_count") and settings.queues is not None:
        slots = queue_slots(settings.queues)
        if None not in slots.values():
            yield (
                f"worker_count: {settings.worker_count} has no effect: every queue of "
                f"{masked(settings.queues)} has slots of its own"
            )
    for field in _OF_METRICS:
        value = getattr(settings, field)
        if settings.metrics_port is None and value != _default(settings, field):
            yield f"{field}: {value} has no effect: metrics_port is off"
    yield from _without(settings, "api_port", _OF_API)
    yield from _without(settings, "api_oidc_issuer", _OF_OIDC)
    for field in _OF_REMOTE:
        value = getattr(settings, field)
        if value is not None and not settings.remote:
            yield f"{field}: it has no effect: the store is not at https://…"
    if settings.api_tls_key_file is not None and settings.api_tls_cert_file is None:
        yield "api_tls_key_file: it has no effect without api_tls_cert_file"
    if settings.metrics_key_file is not None and settings.metrics_cert_file is None:
        yield "metrics_key_file: it has no effect without metrics_cert_file"
    if settings.metrics_port is not None and not is_loopback(settings.metrics_host):
        yield from _exposed(settings)


def _without(settings: Settings, needed: str, fields: Sequence[str]) -> Iterator[str]:
    """Return a warning for each of these settings that is set while another, needed one is not."""
    if getattr(settings, needed) is None:
        for field in fields:
            if getattr(settings, field) != _default(settings, field):
                yield f"{field}: it has no effect: {needed} is off"


def _exposed(settings: Settings) -> Iterator[str]:
    """Return a warning if anybody on the network can read the metrics, or the token for them."""
    host = settings.metrics_host
    if settings.metrics_token_file is None:
        yield (
            f"metrics_host: {host} is reachable from other machines, and /metrics needs no token "
            "there: set metrics_token_file, or limit who reaches the port"
        )
    elif settings.metrics_cert_file is None:
        yield (
            f"metrics_host: {host} is reachable from other machines, and the token for /metrics "
            "is sent unencrypted: set metrics_cert_file"
        )


def within_cap(settings: Settings) -> float:
    """Return the timeout of tasks; at its default it leaves room below a cap that is set."""
    timeout, cap = settings.task_timeout_seconds, settings.max_processing_seconds
    if cap is None or timeout != _default(settings, "task_timeout_seconds"):
        return timeout
    return min(timeout, cap * _TIMEOUT_SHARE_OF_CAP)


def _default(settings: Settings, field: str) -> object:
    return settings.__struct_defaults__[settings.__struct_fields__.index(field)]
