"""Parsers of single values: from text or YAML to the value of the field, or ``InvalidInput``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

from holdfast.model.durations import Duration, seconds_of
from holdfast.model.errors import InvalidInput
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    MAX_TIME_US,
    MICROSECONDS,
    check_name,
    check_seconds,
    check_size,
)
from holdfast.model.redaction import shown
from holdfast.model.schema_name import check_schema

from .oidc_values import https_url, key_set_place, role_map
from .store_url import database_url, file_path, is_server, store

SyncName = Literal["always", "interval", "off"]
HistoryName = Literal["required", "anew"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["console", "json", "auto"]
EventLoop = Literal["asyncio", "uvloop"]
WakeName = Literal["notify", "poll"]

MAX_WORKERS = 10_000
_MAX_FLAGS = 1_000
_SWITCHES = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")

Parser: TypeAlias = Callable[[str, object], object]
"""Takes the name of a field and a raw value; returns the parsed value or raises."""


def queue_slots(text: str) -> dict[str, int | None]:
    """Return the queues that text such as ``mail:8,slow:2,default`` names, and the slots of each.

    None: all slots. The number follows the last colon, so a queue whose name has a colon needs
    a number.
    """
    found: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, number = part.strip().rpartition(":")
        if not colon:
            name, number = number, ""
        name = check_name("queues", name.strip())
        if name in found:
            raise InvalidInput("queues", f"{text!r} names {name!r} twice")
        found[name] = whole(1, MAX_WORKERS)("queues", number.strip()) if colon else None
    return found


def whole(least: int, most: int = MAX_TIME_US) -> Callable[[str, object], int]:
    """Return a parser of whole numbers."""

    def parse(field: str, value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", value):
            value = int(value)
        if type(value) is not int:
            raise InvalidInput(field, f"{shown(value)} is not a whole number")
        if value.bit_length() > 64:  # Python refuses to print very long numbers
            problem = f"is not a whole number from {least:,} to {most:,}"
            raise InvalidInput(field, f"{shown(value)} {problem}")
        return check_size(field, value, least, most)

    return parse


def _size(least: int) -> Parser:
    number = whole(least)

    def parse(field: str, value: object) -> int:
        found = (
            re.fullmatch(r"\s*([0-9]{1,20})\s*([KMGT])iB\s*", value)
            if isinstance(value, str)
            else None
        )
        if found is None:
            return number(field, value)
        return number(field, int(found[1]) << 10 * (1 + "KMGT".index(found[2])))

    return parse


def _seconds(
    *, zero: bool = False, least: float = 0.0, most: float = MAX_TIME_US / MICROSECONDS
) -> Parser:
    def parse(field: str, value: object) -> float:
        if not isinstance(value, Duration):
            raise InvalidInput(field, f"{shown(value)} is not a duration")
        try:
            seconds = seconds_of(field, value)
        except OverflowError:
            raise InvalidInput(field, f"{shown(value)} is not a duration: it is too long") from None
        if seconds == 0:
            if zero:
                return seconds
            raise InvalidInput(field, f"{shown(value)} is too short: give more than 0, such as 30s")
        if 0 < seconds < least:
            raise InvalidInput(field, f"{shown(value)} is less than {least:g} seconds")
        return check_seconds(field, seconds, most)

    return parse


def _word(choices: tuple[str, ...]) -> Parser:
    def parse(field: str, value: object) -> str:
        # YAML reads "off" as false.
        word = "off" if value is False else value
        if not isinstance(word, str) or word.strip().lower() not in choices:
            raise InvalidInput(field, f"{shown(value)} is not one of {', '.join(choices)}")
        return word.strip().lower()

    return parse


def _or_none(parse: Parser, words: tuple[str, ...] = ("none", "off")) -> Parser:
    def parse_or_none(field: str, value: object) -> object:
        off = value is None or (value is False and "off" in words)
        if off or (isinstance(value, str) and value.strip().lower() in words):
            return None
        return parse(field, value)

    return parse_or_none


def _name(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, f"{shown(value)} is not text: put it in quotes")
    return check_name(field, value)


def _schema(field: str, value: object) -> str:
    return check_schema(field, _name(field, value))


def _server(field: str, value: object) -> str:
    url = database_url(field, value)
    if not is_server(url):
        raise InvalidInput(field, f"{shown(value)} is not postgresql://user@host/database")
    return url


def _host_names(field: str, value: object) -> str:
    names = [name.strip() for name in _name(field, value).split(",")]
    for name in names:
        plain = name.removeprefix(".").replace("-", "").replace("_", "").replace(".", "")
        if name != "*" and not (plain.isascii() and plain.isalnum()):
            raise InvalidInput(field, f"{name!r} is not a name such as jobs.example.org")
    return ",".join(names)


def _networks(field: str, value: object) -> str:
    import ipaddress  # noqa: PLC0415 - rarely needed

    parts = [part.strip() for part in _name(field, value).split(",")]
    for part in parts:
        try:
            ipaddress.ip_network(part)
        except ValueError:
            problem = f"{part!r} is neither an address nor a network such as 10.0.0.0/8"
            raise InvalidInput(field, problem) from None
    return ",".join(parts)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches this address."""
    if host in _LOCAL_HOSTS:
        return True
    import ipaddress  # noqa: PLC0415 - rarely needed

    return ipaddress.ip_address(host).is_loopback


def _host(field: str, value: object) -> str:
    host = _name(field, value)
    try:
        is_loopback(host)
    except ValueError:
        raise InvalidInput(field, f"{host!r} is neither an IP address nor localhost") from None
    return host


def _jitter(field: str, value: object) -> float:
    try:
        share = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        share = math.nan
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise InvalidInput(field, f"{shown(value)} is not a number from 0 (none) to 1 (full)")
    return share


def _queues(field: str, value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if not isinstance(value, str):
        raise InvalidInput(field, f"{shown(value)} is not text such as 'mail:8,slow:2'")
    queue_slots(value)
    return value


def _yaml_files(field: str, value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    parts = value.split(",") if isinstance(value, str) else []
    if not parts or not all(part.strip() and "\x00" not in part for part in parts):
        raise InvalidInput(field, f"{shown(value)} does not name files, as ./{field}.yaml does")
    return str(value)


def _flags(field: str, value: object) -> dict[str, bool]:
    pairs: list[tuple[object, object]]
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",")] if value.strip() else []
        pairs = [(name.strip(), switch.strip()) for name, _equals, switch in parts]
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        raise InvalidInput(field, f"{shown(value)} is not a list such as 'auto_replay=on,fast=off'")
    if len(pairs) > _MAX_FLAGS:
        raise InvalidInput(field, f"{len(pairs):,} flags; the limit is {_MAX_FLAGS:,}")
    found: dict[str, bool] = {}
    for name, switch in pairs:
        on = _SWITCHES.get(switch.lower()) if isinstance(switch, str) else switch
        if type(on) is not bool:
            raise InvalidInput(field, f"{shown(name)} is neither on nor off but {shown(switch)}")
        flag = _name(field, name)
        if flag in found:
            raise InvalidInput(field, f"{shown(value)} names {flag!r} twice")
        found[flag] = on
    return found


def _switch(field: str, value: object) -> bool:
    on = _SWITCHES.get(value.strip().lower()) if isinstance(value, str) else value
    if type(on) is not bool:
        raise InvalidInput(field, f"{shown(value)} is neither on nor off")
    return on


PARSERS: Mapping[str, Parser] = {
    "store": store,
    "api_key_file": _or_none(file_path, ()),
    "api_ca_file": _or_none(file_path, ()),
    "schema": _schema,
    "projection_schema": _schema,
    "max_connections": whole(1, 1_000),
    "statement_timeout_seconds": _seconds(least=0.001, most=86_400.0),
    "wake": _word(get_args(WakeName)),
    "listen_url": _or_none(_server, ("none",)),
    "wal_path": _or_none(file_path, ()),
    "snapshot_path": _or_none(file_path, ()),
    "worker_count": whole(1, MAX_WORKERS),
    "processes": whole(1, 1_024),
    "queues": _or_none(_queues, ()),
    "worker_id": _or_none(_name, ()),
    "catalog": _or_none(_yaml_files, ("none",)),
    "projections": _or_none(_yaml_files, ("none",)),
    "only_projections": _or_none(_name, ()),
    "chronicle": _switch,
    "default_task": _name,
    "batch_size": _or_none(whole(1, MAX_WORKERS)),
    "poll_interval_seconds": _seconds(least=0.001, most=3_600.0),
    "task_timeout_seconds": _seconds(),
    "lease_seconds": _seconds(most=MAX_LEASE_SECONDS),
    "max_processing_seconds": _or_none(_seconds(), ("none",)),
    "reclaim_interval_seconds": _seconds(),
    "max_attempts": whole(1, 1_000_000),
    "base_backoff_seconds": _seconds(zero=True),
    "max_backoff_seconds": _seconds(zero=True),
    "backoff_jitter": _jitter,
    "outage_max_seconds": _seconds(),
    "remember_seconds": _seconds(),
    "max_history_bytes": _size(64 * 1024),
    "keep_payload": _switch,
    "snapshot_interval_seconds": _or_none(_seconds()),
    "keep_log_bytes": _or_none(_size(1)),
    "sync": _word(get_args(SyncName)),
    "history": _word(get_args(HistoryName)),
    "drain_seconds": _seconds(zero=True),
    "run_seconds": _or_none(_seconds()),
    "stall_seconds": _or_none(_seconds()),
    "event_loop": _word(get_args(EventLoop)),
    "memory_limit_bytes": _or_none(_size(1024 * 1024)),
    "cpu_limit_seconds": _or_none(_seconds(least=1.0, most=86_400.0)),
    "metrics_host": _host,
    "metrics_port": _or_none(whole(0, 65_535)),
    "metrics_allowed_hosts": _or_none(_host_names, ()),
    "metrics_token_file": _or_none(file_path, ()),
    "metrics_cert_file": _or_none(file_path, ()),
    "metrics_key_file": _or_none(file_path, ()),
    "api_host": _host,
    "api_port": _or_none(whole(0, 65_535)),
    "api_allowed_hosts": _or_none(_host_names, ()),
    "api_tls_cert_file": _or_none(file_path, ()),
    "api_tls_key_file": _or_none(file_path, ()),
    "api_trusted_proxies": _or_none(_networks, ()),
    "api_key_rate": whole(0, 100_000_000),
    "api_tenant_rate": whole(0, 100_000_000),
    "api_tenant_jobs": whole(0, 1_000_000),
    "api_metrics_token_file": _or_none(file_path, ()),
    "api_statement_timeout_seconds": _seconds(least=0.001, most=86_400.0),
    "api_oidc_issuer": _or_none(https_url, ("none",)),
    "api_oidc_audience": _or_none(_name, ()),
    "api_oidc_jwks": _or_none(key_set_place, ()),
    "api_oidc_roles": _or_none(role_map, ()),
    "api_oidc_roles_claim": _name,
    "api_oidc_tenants_claim": _name,
    "api_oidc_scopes_claim": _or_none(_name, ("none",)),
    "log_level": _word(get_args(LogLevel)),
    "log_format": _word(get_args(LogFormat)),
    "flags": _flags,
}
