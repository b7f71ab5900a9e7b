"""Tokens of an identity provider: what they grant, and every one that is refused."""

import asyncio
import contextlib
import json
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import jwt
import pytest
import trustme

from holdfast.api import jwks
from holdfast.api.limits import LimitOptions
from holdfast.api.oidc import TokenVerifier
from holdfast.api.problems import RequestRefused
from holdfast.api.server import refuse_open_door, token_verifier
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.errors import InvalidInput
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role
from holdfast.settings import Settings
from tests.e2e.rig import Rig

from .issuer import ISSUER, Issuer, part
from .rig import Api, opened
from .test_ingest import listening
from .test_server import served
from .test_stream import streaming

RSA = Issuer(bits=2_048, kid="rsa")
EC = Issuer(kid="ec")
STRANGER = Issuer(kid="ec")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(EC.document(RSA))
    return path


def settings_of(place: object, **more: str) -> Settings:
    return Settings(**{**EC.settings(str(place)), **more})  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def api_with(place: Path, **more: str) -> AsyncIterator[Api]:
    async with opened(tokens=TokenVerifier(settings_of(place, **more))) as api:
        yield api


@pytest.mark.parametrize(("issuer", "algorithm"), [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS512")])
async def test_a_token_counts_as_a_key_does(key_file, issuer, algorithm):
    async with api_with(key_file) as api:
        token = issuer.token(algorithm=algorithm)
        me = (await api.call(token, "GET", "/v2/me")).json()["data"]
        assert (me["name"], me["tenant"]) == ("ann@id.example.org", "acme")
        assert (me["roles"], me["key_id"][:5]) == (["operator"], "oidc:")
        await api.dead_letter("d1")
        await api.dead_letter("d2", tenant="other")
        gone = await api.call(token, "POST", "/v2/jobs/d1/notes", body={"why": "a note"})
        assert gone.status_code == 200, gone.text
        assert (await api.call(token, "GET", "/v2/jobs/d2")).status_code == 404
        denied = await api.call(token, "GET", "/v2/keys")
        assert denied.status_code == 403
        entries = [one.entry for one in await api.engine.audited(limit=100)]
        by = {one.action: (one.user_id, json.loads(one.changes).get("key")) for one in entries}
        assert by["access.denied"] == ("ann@id.example.org", me["key_id"])
        assert not await api.engine.records("key_use")


async def test_a_key_counts_beside_tokens(key_file):
    async with api_with(key_file) as api:
        key = await api.key(Role.VIEWER)
        assert (await api.call(key, "GET", "/v2/me")).status_code == 200
        assert (await api.call(key + "x", "GET", "/v2/me")).status_code == 401


async def test_without_an_issuer_no_token_counts():
    async with opened() as api:
        assert (await api.call(EC.token(), "GET", "/v2/me")).status_code == 401


NOW = int(time.time())
WRONG: dict[str, Callable[[], str]] = {
    "no algorithm": EC.token_without_signature,
    "HMAC with the public key": RSA.token_by_public_key,
    "a stranger's signature": STRANGER.token,
    "another algorithm than its key's": lambda: RSA.token(kid="ec"),
    "an unknown kid": lambda: EC.token(kid="other"),
    "no kid": lambda: jwt.encode(EC.claims(), EC.key, "ES256"),  # type: ignore[arg-type]
    "expired": lambda: EC.token(exp=NOW - 60),
    "no exp": lambda: EC.token(exp=None),
    "exp is text": lambda: EC.token(exp="soon"),
    "exp is infinite": lambda: EC.token(exp=float("inf")),
    "not yet": lambda: EC.token(nbf=NOW + 600),
    "another issuer": lambda: EC.token(iss=ISSUER + "/"),
    "no issuer": lambda: EC.token(iss=None),
    "another audience": lambda: EC.token(aud=["shop", "holdfast2"]),
    "no audience": lambda: EC.token(aud=None),
    "no subject": lambda: EC.token(sub=None),
    "a subject that is no text": lambda: EC.token(sub=7),
    "other claims than those that were signed": lambda: _tampered(EC.token()),
    "a critical header": lambda: jwt.encode(
        EC.claims(),
        EC.key,  # type: ignore[arg-type]
        "ES256",
        {"kid": "ec", "crit": ["x"], "x": 1},
    ),
    "deep": lambda: f"{part(b'[' * 9_000)}.a.b",
    "too long": lambda: EC.token(filler="x" * 20_000),
    "no JSON": lambda: "a.b.c",
    "empty": lambda: "..",
}


def _tampered(token: str) -> str:
    header, _claims, signature = token.split(".")
    return f"{header}.{part(EC.claims(roles=['boss'], tenants='*'))}.{signature}"


@pytest.mark.parametrize("name", WRONG)
async def test_every_wrong_token_is_refused(key_file, name):
    async with api_with(key_file) as api:
        got = await api.call(WRONG[name](), "GET", "/v2/me")
        assert got.status_code == 401, got.text
        assert got.json()["type"] == "/problems/unauthenticated"
        assert "Bearer" in got.headers["www-authenticate"]


@pytest.mark.parametrize(
    "name", ["a stranger's signature", "other claims than those that were signed"]
)
async def test_control_the_signature_is_what_refuses_them(key_file, monkeypatch, name):
    decode = jwt.decode

    def trusting(token, *_given, **_named):
        return decode(token, options={"verify_signature": False})

    monkeypatch.setattr("holdfast.api.oidc.jwt.decode", trusting)
    async with api_with(key_file) as api:
        assert (await api.call(WRONG[name](), "GET", "/v2/me")).status_code == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"roles": None},
        {"roles": []},
        {"roles": ["cooks"]},
        {"roles": ["admin"]},
        {"roles": [["ops"]]},
        {"roles": "ops boss"},
        {"tenants": None},
        {"tenants": []},
        {"tenants": [""]},
        {"tenants": {"acme": True}},
        {"areas": None},
        {"areas": []},
        {"areas": ["a"], "tenants": "*"},
        {"areas": ["a"], "tenants": ["acme", "beta"]},
        {"sub": "a\nb"},
    ],
)
async def test_what_a_token_does_not_say_it_does_not_grant(key_file, claims):
    async with api_with(key_file, api_oidc_scopes_claim="areas") as api:
        good = {"areas": "*"}
        assert (await api.call(EC.token(good), "GET", "/v2/me")).status_code == 200
        got = await api.call(EC.token({**good, **claims}), "GET", "/v2/me")
        assert (got.status_code, got.json()["type"]) == (403, "/problems/forbidden"), got.text


async def test_reach_by_claims(key_file):
    more = {"api_oidc_scopes_claim": "areas", "api_oidc_roles_claim": "realm_access.roles"}
    async with api_with(key_file, **more) as api:

        async def me(path: str, **claims: object) -> httpx.Response:
            roles = {"roles": ["look", "boss"]}
            good = {"roles": None, "realm_access": roles, "areas": "*"}
            token = EC.token({**good, **claims})
            return await api.call(token, "GET", path)

        everything = (await me("/v2/me", tenants="*")).json()["data"]
        assert (everything["tenant"], everything["roles"]) == (None, ["admin", "viewer"])
        inside = (await me("/v2/me", areas=["library:42"])).json()["data"]
        assert (inside["tenant"], inside["scopes"]) == ("acme", ["library:42"])
        several = {"tenants": ["acme", "beta"]}
        assert (await me("/v2/jobs", **several)).json()["type"] == "/problems/tenant-required"
        assert (await me("/v2/tenants/beta/jobs", **several)).status_code == 200
        assert (await me("/v2/tenants/other/jobs", **several)).status_code == 404


async def test_the_tokens_of_a_subject_share_its_limits(key_file):
    tokens = TokenVerifier(settings_of(key_file))
    async with opened(limits=LimitOptions(key_rate=2), tokens=tokens) as api:
        sent = [EC.token(), EC.token(jti="another"), EC.token(jti="a third"), EC.token(sub="bob")]
        got = [(await api.call(one, "GET", "/v2/me")).status_code for one in sent]
        assert got == [200, 200, 429, 200]


async def test_a_stream_of_a_token_goes_on(key_file, monkeypatch):
    monkeypatch.setattr("holdfast.operations.change_watch.POLL_SECONDS", 0.05)
    async with (
        api_with(key_file) as api,
        listening(api) as port,
        streaming(port, EC.token()) as events,
    ):
        for number in range(3):
            await api.engine.enqueue([NewJob(task="t", id=f"j{number}", tenant="acme")])
            assert (await events.next())["event"] == "changed"


class KeyServer:
    """Serves a document of keys over TLS."""

    def __init__(self, authority: trustme.CA) -> None:
        self.document = EC.document()
        self.asked = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                if self.path == "/away":
                    self.send_response(302)
                    self.send_header("location", "/jwks")
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(server.document.encode())

            def log_message(self, *_given: object) -> None:
                pass

        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def at(self, path: str) -> str:
        return f"https://127.0.0.1:{self._http.server_port}{path}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def key_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyServer]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("NO_PROXY", "*")
    server = KeyServer(authority)
    yield server
    server.close()


async def test_an_unknown_kid_asks_the_issuer_again_once_a_minute(key_server):
    now = [0.0]
    tokens = TokenVerifier(settings_of(key_server.at("/jwks")), lambda: now[0])
    await asyncio.gather(*(tokens.key(EC.token()) for _ in range(5)))
    assert key_server.asked == 1
    key_server.document = EC.document(RSA)
    for seconds, asked in ((1.0, 1), (59.0, 1), (61.0, 2)):
        now[0] = seconds
        for _ in range(3):
            with contextlib.suppress(RequestRefused):
                await tokens.key(RSA.token(kid="nobody's"))
        assert key_server.asked == asked
    assert (await tokens.key(RSA.token())).name == "ann@id.example.org"


async def test_a_key_that_its_issuer_took_back_counts_no_longer(key_server):
    now = [0.0]
    tokens = TokenVerifier(settings_of(key_server.at("/jwks")), lambda: now[0])
    await tokens.key(EC.token())
    key_server.document = RSA.document()
    now[0] = jwks.FRESH_SECONDS + 1
    await tokens.key(EC.token())  # it does not wait; the keys are read meanwhile
    reading = tokens._keys._reading
    assert reading is not None
    await reading
    with pytest.raises(RequestRefused, match="no such key"):
        await tokens.key(EC.token())


@pytest.mark.parametrize("path", ["/away", "/jwks"])
async def test_an_issuer_that_cannot_be_asked_is_503_and_keys_go_on(key_server, monkeypatch, path):
    if path == "/jwks":
        monkeypatch.delenv("SSL_CERT_FILE")  # its certificate is a stranger's
    async with opened(tokens=TokenVerifier(settings_of(key_server.at(path)))) as api:
        key = await api.key(Role.VIEWER)
        got = await api.call(EC.token(), "GET", "/v2/me")
        assert (got.status_code, got.json()["type"]) == (503, "/problems/unavailable")
        assert got.headers["retry-after"] == "60"
        assert (await api.call(key, "GET", "/v2/me")).status_code == 200


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [{"kty": "oct", "kid": "ec", "k": part(b"secret" * 8)}],
        [{"kty": "RSA", "kid": "ec", "n": "AQ", "e": "AQAB"}],
        [Issuer(bits=1_024).jwk()],
        [EC.jwk(use="enc")],
        [EC.jwk(alg="HS256")],
        [EC.jwk(kid=None)],
        [EC.jwk(d="AQ")],
        "none",
    ],
)
def test_a_file_without_a_key_that_can_be_used_is_refused(key_file, keys):
    key_file.write_text(json.dumps({"keys": keys}))
    with pytest.raises(InvalidInput) as refused:
        token_verifier(settings_of(key_file))
    assert refused.value.field == "api_oidc_jwks"


def test_without_the_extra_it_says_what_to_install(key_file, monkeypatch):
    monkeypatch.delitem(sys.modules, "holdfast.api.oidc")
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(InvalidInput, match=r"pip install 'holdfast\[oidc\]'"):
        token_verifier(settings_of(key_file))


async def test_others_may_reach_it_if_tokens_are_needed(key_file):
    engine = MemoryEngine()
    await refuse_open_door(engine, settings_of(key_file), "192.0.2.1", "--host")
    with pytest.raises(InvalidInput):
        await refuse_open_door(engine, Settings(), "192.0.2.1", "--host")


def test_serve_and_run_take_the_settings(tmp_path, key_file):
    rig = Rig(tmp_path)
    try:
        for name, value in EC.settings(str(key_file)).items():
            rig.env[f"HOLDFAST_{name.upper()}"] = value
        rig.run().ready()
        _server, at = served(rig)
        token = {"authorization": f"Bearer {EC.token()}"}
        made = httpx.post(f"{at}/v2/jobs", headers=token, json={"task": "later"})
        assert made.status_code == 201, made.text
    finally:
        rig.close()
