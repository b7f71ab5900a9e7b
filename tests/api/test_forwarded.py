"""Who asks, with proxies before the server."""

import msgspec
import pytest

from holdfast.api.application import ApiApplication
from holdfast.api.forwarded import TrustedProxies
from holdfast.api.request_handler import ServiceOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.permissions import Role

from .rig import opened


@pytest.mark.parametrize(
    ("trusted", "peer", "said", "who"),
    [
        ([], "10.0.0.1", "1.2.3.4", "10.0.0.1"),
        (["10.0.0.0/8"], "10.0.0.1", "1.2.3.4", "1.2.3.4"),
        (["10.0.0.0/8"], "192.0.2.9", "1.2.3.4", "192.0.2.9"),
        (["10.0.0.0/8"], "10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.7", "1.2.3.4"),
        (["10.0.0.0/8"], "10.0.0.1", "6.6.6.6, nonsense", "10.0.0.1"),
        (["10.0.0.0/8"], "10.0.0.1", "", "10.0.0.1"),
        (["10.0.0.1"], "::ffff:10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        (["::1"], "::1", "1.2.3.4:5678", "1.2.3.4"),
    ],
)
def test_the_last_address_that_no_trusted_proxy_has(trusted, peer, said, who):
    assert TrustedProxies(trusted).address(peer, {"x-forwarded-for": said}) == who


def test_what_is_no_network_is_refused():
    with pytest.raises(InvalidInput, match="--trusted-proxy"):
        TrustedProxies(["10.0.0.1/8x"])


@pytest.mark.parametrize(("trusted", "who"), [(["127.0.0.1"], "1.2.3.4"), ([], "127.0.0.1")])
async def test_the_address_is_that_of_the_last_use_of_a_key(trusted, who):
    async with opened() as api:
        options = ServiceOptions(default_max_attempts=3, proxies=TrustedProxies(trusted))
        api.http._transport.app = ApiApplication(  # type: ignore[attr-defined]
            api.engine, options
        )
        key = await api.key(Role.VIEWER)
        await api.call(key, "GET", "/v2/me", headers={"x-forwarded-for": "1.2.3.4"})
        (use,) = await api.engine.records("key_use")
        assert who in msgspec.json.encode(use).decode()
