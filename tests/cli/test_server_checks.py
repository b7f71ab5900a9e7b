"""What ``holdfast doctor`` says about rights on a server: each finding, and a server without it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli.commands.doctor import CheckResult
from holdfast.cli.server_checks import server_checks
from holdfast.engines.postgres.connection import database
from holdfast.engines.postgres.engine import PostgresEngine
from tests.engines.postgres.roles import RoleDatabases, as_user, execute


@pytest.fixture
def url(roles18: RoleDatabases) -> Iterator[str]:
    """A database to which only the roles of Holdfast, and a stranger, may connect."""
    with roles18.fresh() as url:
        name = conninfo_to_dict(url)["dbname"]
        execute(url, f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
        execute(url, f'GRANT CONNECT ON DATABASE "{name}" TO holdfast_run, holdfast_read, stranger')
        yield url


async def findings(url: str, user: str = "runner") -> dict[str, CheckResult]:
    engine = await PostgresEngine.open(as_user(url, user), reading=True)
    try:
        return {one.check: one for one in await server_checks(engine)}
    finally:
        await engine.close()


@pytest.mark.parametrize("user", ["runner", "reader"])
async def test_with_few_rights_and_no_strangers_there_is_nothing_to_say(url, user):
    found = await findings(url, user)
    assert {name: one.verdict for name, one in found.items()} == {"rights": "ok"}
    assert user in found["rights"].said


async def test_a_database_to_which_everybody_may_connect(url):
    name = conninfo_to_dict(url)["dbname"]
    execute(url, f'GRANT CONNECT ON DATABASE "{name}" TO PUBLIC')
    found = (await findings(url))["connect"]
    assert found.verdict == "warning"
    assert "REVOKE CONNECT" in found.advice


async def test_advisory_locks_of_somebody_without_rights(url):
    lock = "SELECT pg_advisory_lock(1)"
    with psycopg.connect(as_user(url, "other_runner"), autocommit=True) as ours:
        ours.execute(lock)
        assert "locks" not in await findings(url), "who runs jobs may hold locks"
        ours.execute("SELECT pg_advisory_unlock(1)")
        with psycopg.connect(as_user(url, "stranger"), autocommit=True) as connection:
            connection.execute(lock)
            found = (await findings(url))["locks"]
            assert found.verdict == "warning"
            assert f"stranger (process {connection.info.backend_pid})" in found.said


SHADOWS = {
    "public.length(text)": "CREATE FUNCTION public.length(text) RETURNS int LANGUAGE sql RETURN 1",
    "public.+(text,text)": "CREATE OPERATOR public.+ (FUNCTION = pg_catalog.textcat,"
    " LEFTARG = text, RIGHTARG = text)",
}


@pytest.mark.parametrize("shadow", SHADOWS)
async def test_functions_and_operators_that_shadow_those_of_the_server(url, shadow):
    execute(url, "CREATE FUNCTION public.of_ours(text) RETURNS int LANGUAGE sql RETURN 1")
    assert "search_path" not in await findings(url), "a name of its own shadows nothing"
    execute(url, SHADOWS[shadow])
    found = (await findings(url))["search_path"]
    assert found.verdict == "warning"
    assert shadow in found.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER ROLE judged SUPERUSER", "is a superuser"),
        ("ALTER ROLE judged CREATEROLE", "may make roles or databases"),
        ("ALTER ROLE judged CREATEDB", "may make roles or databases"),
        ("ALTER ROLE judged BYPASSRLS", "may make roles or databases"),
        ("GRANT holdfast_migrate TO judged", "owns the tables"),
    ],
)
async def test_a_user_with_more_rights_than_it_needs(url, change, said):
    execute(url, "DROP ROLE IF EXISTS judged; CREATE ROLE judged LOGIN IN ROLE holdfast_run")
    try:
        assert (await findings(url, "judged"))["rights"].verdict == "ok"
        execute(url, change)
        found = (await findings(url, "judged"))["rights"]
        assert (found.verdict, said in found.said) == ("warning", True), found
    finally:
        execute(url, "DROP ROLE judged")


async def test_a_user_that_may_not_make_partitions(url):
    execute(url, "REVOKE EXECUTE ON FUNCTION holdfast.make_day(bigint) FROM holdfast_run")
    found = (await findings(url))["rights"]
    assert found.verdict == "wrong"
    assert "make_day" in found.said


async def test_a_connection_over_a_network_without_tls(url, monkeypatch):
    assert "tls" not in await findings(url)
    monkeypatch.setattr(database, "_is_local", lambda _address: False)
    found = (await findings(url))["tls"]
    assert found.verdict == "warning"
    assert "sslmode=verify-full" in found.advice


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("10.1.2.3", False),
        ("fe80::1%eth0", False),
    ],
)
def test_which_addresses_are_on_this_machine(address, local):
    assert database._is_local(address) is local
