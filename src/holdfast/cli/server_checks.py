"""The checks of ``holdfast doctor`` of who may do what on a PostgreSQL server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands.doctor import CheckResult

if TYPE_CHECKING:
    from holdfast.engines.postgres.engine import PostgresEngine

_ROLES = "grant it one of the roles of `holdfast migrate --sql --roles`, and nothing else"


async def server_checks(engine: PostgresEngine) -> list[CheckResult]:
    """Whether this user has the rights it needs and no others, and whom else to look at."""
    access = await engine.access()
    found: list[CheckResult] = []
    if access.superuser or access.powerful or access.owner:
        what = "owns the tables"
        if access.superuser or access.powerful:
            what = "is a superuser" if access.superuser else "may make roles or databases"
        text = f"user {access.user!r} {what}: to run jobs needs less"
        found.append(CheckResult("rights", "warning", text, _ROLES))
    elif engine.may_write and access.denied_functions:
        text = f"user {access.user!r} may not call {', '.join(access.denied_functions)}"
        advice = f"GRANT EXECUTE on them, or {_ROLES}: else no partitions are made or dropped"
        found.append(CheckResult("rights", "wrong", text, advice))
    else:
        kind = "what running jobs needs" if engine.may_write else "the right to look, and no other"
        found.append(CheckResult("rights", "ok", f"user {access.user!r} has {kind}"))
    if access.everybody_connects:
        text = "PUBLIC may connect to this database: who connects can hold locks of keys and limits"
        advice = "REVOKE CONNECT ON DATABASE … FROM PUBLIC, and grant it to the roles that need it"
        found.append(CheckResult("connect", "warning", text, advice))
    if access.foreign_locks:
        text = f"advisory locks are held by {', '.join(access.foreign_locks)}, without rights here"
        advice = "if a command waits for a lock, end that process: SELECT pg_terminate_backend(…)"
        found.append(CheckResult("locks", "warning", text, advice))
    if access.shadows:
        text = f"functions or operators of PostgreSQL are shadowed: {', '.join(access.shadows)}"
        advice = "Holdfast does not look there, but others may: see who made them, and drop them"
        found.append(CheckResult("search_path", "warning", text, advice))
    if engine.unencrypted_host:
        text = f"the connection to {engine.unencrypted_host} is not encrypted"
        advice = "add ?sslmode=verify-full&sslrootcert=… to the URL"
        found.append(CheckResult("tls", "warning", text, advice))
    return found
