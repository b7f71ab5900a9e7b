"""The errors of the HTTP libraries themselves, as the documents list them."""

import asyncio
import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import aiohttp
import httpx
import httpx2
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from holdfast.model.failure import _CLIENT_ERRORS

from .test_failure import foreign, judged

CONCEPTS = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text("utf-8")
LIBRARIES = ["httpx", "httpx2", "requests", "aiohttp", "urllib"]


def httpx_status(status: int) -> Exception:
    response = httpx.Response(status, headers={"retry-after": "7"})
    request = httpx.Request("GET", "http://upstream.test/")
    return httpx.HTTPStatusError("x", request=request, response=response)


def httpx2_status(status: int) -> Exception:
    response = httpx2.Response(status, headers={"retry-after": "7"})
    request = httpx2.Request("GET", "http://upstream.test/")
    return httpx2.HTTPStatusError("x", request=request, response=response)


def requests_status(status: int) -> Exception:
    error = foreign("requests.exceptions", "HTTPError", OSError)("x")
    response = type("Response", (), {"status_code": status, "headers": {"Retry-After": "7"}})
    error.response = response()  # type: ignore[attr-defined]
    return error


def aiohttp_status(status: int) -> Exception:
    url, headers = URL("http://upstream.test/"), CIMultiDict({"Retry-After": "7"})
    info = aiohttp.RequestInfo(url, "GET", CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientResponseError(info, (), status=status, headers=headers)


def urllib_status(status: int) -> Exception:
    message = Message()
    message["Retry-After"] = "7"
    return urllib.error.HTTPError("http://upstream.test/", status, "no", message, None)


STATUS: list[Callable[[int], Exception]] = [
    httpx_status,
    httpx2_status,
    requests_status,
    aiohttp_status,
    urllib_status,
]


@pytest.mark.parametrize("error_of", STATUS)
def test_the_status_of_every_library_decides(error_of: Callable[[int], Exception]) -> None:
    assert judged(error_of(429))[1::2] == ("rate_limited", 7.0)
    assert judged(error_of(503))[1::2] == ("upstream_5xx", 7.0)
    assert judged(error_of(400))[1::2] == ("upstream_4xx", None)


def no_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def aiohttp_refused(url: str) -> None:
    async def get() -> None:
        async with aiohttp.ClientSession() as session, session.get(url):
            pass

    asyncio.run(get())


CONNECT: list[Callable[[str], object]] = [
    lambda url: httpx.get(url, trust_env=False),
    lambda url: httpx2.get(url, trust_env=False),
    aiohttp_refused,
    lambda url: urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url),
]


@pytest.mark.parametrize("get", CONNECT, ids=["httpx", "httpx2", "aiohttp", "urllib"])
def test_a_refused_connection_is_one_in_every_library(get: Callable[[str], object]) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - each library has its own
        get(f"http://127.0.0.1:{no_port()}/")
    assert judged(refused.value)[1] == "connection"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (httpx.ReadTimeout("x"), "timeout"),
        (httpx.PoolTimeout("x"), "timeout"),
        (httpx.RemoteProtocolError("x"), "connection"),
        (httpx2.ConnectTimeout("x"), "timeout"),
        (httpx2.ReadError("x"), "connection"),
        (aiohttp.ServerTimeoutError("x"), "timeout"),
        (aiohttp.ServerDisconnectedError("x"), "connection"),
        (aiohttp.ConnectionTimeoutError("x"), "timeout"),
        (foreign("requests.exceptions", "Timeout", OSError)("x"), "timeout"),
        (foreign("requests.exceptions", "ConnectionError", OSError)("x"), "connection"),
        (urllib.error.URLError(TimeoutError("x")), "timeout"),
        (urllib.error.URLError("no route"), "connection"),
        (http.client.RemoteDisconnected("x"), "connection"),
        (TimeoutError("x"), "timeout"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_time_outs_and_lost_connections_of_the_libraries(error: Exception, reason: str) -> None:
    assert judged(error)[1] == reason


def test_the_documents_name_the_libraries_that_are_known() -> None:
    known = {module for module, _name in _CLIENT_ERRORS}
    for library in LIBRARIES:
        assert f"`{library}`" in CONCEPTS
        assert library == "urllib" or library in known
    for library in known - {"pydantic_core"}:
        assert f"`{library}`" in CONCEPTS, library
