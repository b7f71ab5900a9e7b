"""Names under which a server may be asked, and the files of its credentials."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from holdfast.daemon.rpc.probes import ProbeApp
from holdfast.http import credential_files
from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.credential_files import TlsFiles, TokenFile
from holdfast.http.exchange import HttpRequest
from holdfast.model.errors import InvalidInput

CERTIFICATES = Path(__file__).parent / "certificates"
TOKEN = b"0123456789abcdef"


def asked(*hosts: bytes, version: str = "1.1") -> HttpRequest:
    return HttpRequest("GET", b"/", [(b"host", host) for host in hosts], version, keep_alive=True)


@pytest.mark.parametrize(
    "host",
    [
        *(b"127.0.0.1", b"127.0.0.1:9090", b"[::1]:9090", b"[::1]", b"10.1.2.3:80"),
        *(b"localhost", b"LOCALHOST:9090", b"localhost.", b"m.example.org:9090"),
        *(b"holdfast.default.svc", b"svc"),
    ],
)
def test_a_name_of_this_server(host: bytes) -> None:
    hosts = AllowedHosts(["M.example.org", ".default.svc", "svc"], "hosts")
    assert hosts.refusal(asked(host)) is None


@pytest.mark.parametrize(
    "host",
    [
        *(b"evil.example", b"evil.example:9090", b"m.example.org.evil.example", b"xm.example.org"),
        *(b"", b":9090", b"default.svc", b"127.0.0.1.evil.example", b"x" * 5_000, b"\xff", b"a b"),
    ],
)
def test_another_name_is_refused(host: bytes) -> None:
    hosts = AllowedHosts(["m.example.org", ".default.svc", ""], "hosts")
    refusal = hosts.refusal(asked(host))
    assert refusal is not None
    assert refusal.status == 421


def test_a_request_has_one_host() -> None:
    hosts = AllowedHosts([], "hosts")
    for request in (asked(), asked(b"localhost", b"localhost")):
        refusal = hosts.refusal(request)
        assert refusal is not None
        assert refusal.status == 400
    assert hosts.refusal(asked(version="1.0")) is None


def test_control_a_star_is_any_name() -> None:
    assert AllowedHosts(["*"], "hosts").refusal(asked(b"evil.example")) is None


# --- a token -------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at files whenever they are used."""
    monkeypatch.setattr(credential_files, "_LOOK_AGAIN_SECONDS", 0)


async def never() -> None:
    await asyncio.Event().wait()


async def status(app: ProbeApp, path: bytes, *authorizations: bytes) -> int:
    headers = [(b"authorization", value) for value in authorizations]
    request = HttpRequest("GET", path, headers, "1.1", keep_alive=True)
    return (await app.handle(request, never)).status


async def test_metrics_need_the_token_and_health_does_not(tmp_path: Path, at_once: None) -> None:
    async def fine(_body: bytes) -> tuple[int, str, bytes]:
        return 200, "text/plain", b""

    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    routes = {"GET /metrics": fine, "GET /health/live": fine}
    app = ProbeApp(routes, TokenFile(str(file), "metrics_token_file"))
    right = b"Bearer " + TOKEN
    assert await status(app, b"/health/live") == 200
    for wrong in (b"Bearer", b"Bearer x", b"Basic " + TOKEN, TOKEN, right + b"x", b"Bearer \xff"):
        assert await status(app, b"/metrics", wrong) == 401
    assert await status(app, b"/metrics") == 401
    assert await status(app, b"/metrics?a=b") == 401
    assert await status(app, b"/metrics", right, right) == 401
    assert await status(app, b"/metrics", right) == 200
    assert await status(app, b"/metrics", b"bearer  " + TOKEN) == 200
    file.write_bytes(b"another token, as long")
    assert await status(app, b"/metrics", right) == 401
    assert await status(app, b"/metrics", b"Bearer another token, as long") == 200
    assert await status(ProbeApp(routes), b"/metrics") == 200  # control: without a file


async def test_a_token_file_that_goes_bad_leaves_the_last_token(
    tmp_path: Path, at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_bytes(TOKEN)
    token_file = TokenFile(str(file), "metrics_token_file")
    file.write_bytes(b"short")
    assert token_file.token() == TOKEN
    file.unlink()
    assert token_file.token() == TOKEN
    assert "http.token_refused" in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"short", b"\xff" * 20, b"x" * 5_000])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        TokenFile(str(file), "metrics_token_file")
    assert refused.value.field == "metrics_token_file"


# --- a certificate -------------------------------------------------------------------------------


def copy(name: str, directory: Path) -> tuple[str, str]:
    for kind in ("crt", "key"):
        path = directory / f"tls.{kind}"
        fresh = directory / f"new.{kind}"
        fresh.write_bytes((CERTIFICATES / f"{name}.{kind}").read_bytes())
        fresh.replace(path)
    return str(directory / "tls.crt"), str(directory / "tls.key")


def test_a_changed_certificate_is_used_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tls = TlsFiles(*copy("first", tmp_path), "metrics_cert_file")
    first = tls.context
    tls.refresh()
    assert tls.context is first
    copy("second", tmp_path)
    tls.refresh()
    second = tls.context
    assert second is not first
    assert "http.certificate_loaded" in caplog.text
    (tmp_path / "tls.crt").write_bytes((CERTIFICATES / "first.crt").read_bytes())  # half of it
    tls.refresh()
    assert tls.context is second
    (tmp_path / "tls.key").unlink()
    tls.refresh()
    assert tls.context is second
    assert "http.certificate_refused" in caplog.text


def test_files_that_are_no_certificate_and_its_key_are_refused(tmp_path: Path) -> None:
    certificate, key = copy("first", tmp_path)
    other = str(CERTIFICATES / "second.key")
    for pair in ((certificate, other), (key, key), (certificate, certificate), ("/none", key)):
        with pytest.raises(InvalidInput) as refused:
            TlsFiles(*pair, "metrics_cert_file")
        assert refused.value.field == "metrics_cert_file"


def test_old_tls_and_renegotiation_are_off(tmp_path: Path) -> None:
    context = TlsFiles(*copy("first", tmp_path), "metrics_cert_file").context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
