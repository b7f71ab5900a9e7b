"""What the URL says about TLS is honoured, by every connection."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
import trustme
from psycopg.conninfo import conninfo_to_dict

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema.migrate import migrate
from holdfast.model.errors import Unavailable
from holdfast.model.job import NewJob
from holdfast.model.read_model import ColumnType, ReadModel

from .tls import tls_server

NOTES = ReadModel(name="notes_read", columns={"id": ColumnType.TEXT}, key=("id",))


class Authority(NamedTuple):
    """Certificates in files: of two authorities, and of a client."""

    directory: Path
    ca: trustme.CA
    certificate: str
    other: str
    key: str
    """Of the client, with its certificate."""

    def context(self, *, asks_clients: bool = False) -> ssl.SSLContext:
        """Return what a server of the name ``localhost`` has."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("localhost").configure_cert(context)
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory = tmp_path_factory.mktemp("certificates")
    ca, other = trustme.CA(), trustme.CA()
    paths = [str(directory / name) for name in ("ca.pem", "other.pem", "client.pem")]
    ca.cert_pem.write_to_path(paths[0])
    other.cert_pem.write_to_path(paths[1])
    ca.issue_cert("worker@example.org").private_key_and_cert_chain_pem.write_to_path(paths[2])
    Path(paths[2]).chmod(0o600)
    return Authority(directory, ca, *paths)


@contextlib.contextmanager
def served(server18, context: ssl.SSLContext) -> Iterator[tuple[str, int]]:
    with server18.fresh() as url, tls_server(url, context) as port:
        yield str(conninfo_to_dict(url)["dbname"]), port


def store(database: str, port: int, host: str = "localhost", **parameters: str) -> str:
    query = urlencode({"sslmode": "verify-full", "hostaddr": "127.0.0.1", **parameters})
    return f"postgresql://holdfast@{host}:{port}/{database}?{query}"


async def test_verify_full_is_used_by_every_connection(server18, authority):
    with served(server18, authority.context()) as (database, port):
        url = store(database, port, sslrootcert=authority.certificate)
        assert migrate(url) == []
        engine = await PostgresEngine.open(url, options=PostgresOptions(projection_schema="public"))
        try:
            await engine.enqueue([NewJob(task="t")])
            claim = await engine.claim(queues=["default"], worker="w", wait_seconds=1.0)
            assert len(claim.jobs) == 1
            await engine.read_models.create(NOTES, 1)
            assert [record async for record in engine.dump()]
            assert engine.unencrypted_host == ""
        finally:
            await engine.close()


@pytest.mark.parametrize(
    ("host", "root"), [("localhost", "other"), ("db.example.org", "certificate")]
)
async def test_another_authority_or_another_name_is_refused(server18, authority, host, root):
    with served(server18, authority.context()) as (database, port):
        url = store(database, port, host, sslrootcert=getattr(authority, root))
        with pytest.raises(Unavailable, match=r"certificate|does not match host name"):
            await PostgresEngine.open(url, options=PostgresOptions(patience_seconds=1.0))
        with pytest.raises(Unavailable, match=r"certificate|does not match host name"):
            migrate(url)


async def test_control_without_verification_both_are_accepted(server18, authority):
    with served(server18, authority.context()) as (database, port):
        url = store(database, port, "db.example.org", sslmode="require")
        await (await PostgresEngine.open(url)).close()


async def test_a_certificate_of_the_client_is_sent(server18, authority):
    with served(server18, authority.context(asks_clients=True)) as (database, port):
        root = {"sslrootcert": authority.certificate}
        with pytest.raises(Unavailable):
            await PostgresEngine.open(
                store(database, port, **root), options=PostgresOptions(patience_seconds=1.0)
            )
        url = store(database, port, **root, sslcert=authority.key, sslkey=authority.key)
        await (await PostgresEngine.open(url)).close()
