"""Keys: their text, what is stored of them, and who may make which."""

from __future__ import annotations

from secrets import token_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.access import Caller
from holdfast.model.api_key import KIND, new_key_text, read_key_text
from holdfast.model.errors import AccessDenied, Forbidden, InvalidInput, UnknownKey
from holdfast.model.job import MICROSECONDS
from holdfast.model.permissions import Role
from holdfast.model.principal import Principal, local_principal
from holdfast.operations.attribution import Author
from holdfast.operations.keys import KeyOperations, KeyRequest
from holdfast.testing import VirtualClock

WHO = Author("ann", "a test")
DAY_SECONDS = 86_400


class Keys:
    """A store, and what somebody on the machine does with its keys."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.local = self.of(local_principal("ann"))

    def of(self, principal: Principal) -> KeyOperations:
        """Return what somebody may do with keys."""
        return KeyOperations(self.engine, principal)

    async def found(self, text: str) -> bool:
        """Whether a key counts now."""
        return await self.local.find(text) is not None


async def test_a_key_counts_from_its_making_until_it_is_revoked():
    keys = Keys()
    assert not await keys.local.exist()
    made = await keys.local.create(KeyRequest(name="ci", roles=["producer"]), WHO)
    assert await keys.found(made.text)
    assert await keys.local.exist()
    await keys.local.revoke("ci", WHO)
    assert not await keys.found(made.text)
    actions = [one.entry.action for one in await keys.engine.audited()]
    assert actions == ["key.create", "key.revoke"]


async def test_neither_the_store_nor_the_audit_has_the_secret():
    keys = Keys()
    made = await keys.local.create(KeyRequest(name="ci", roles=["producer"]), WHO)
    parts = read_key_text(made.text)
    assert parts is not None
    kept = repr([await keys.engine.records(KIND), await keys.engine.audited(), parts])
    assert parts.secret not in kept


async def test_a_rotated_key_has_two_secrets_for_a_while():
    keys = Keys()
    old = await keys.local.create(KeyRequest(name="ci", roles=["producer"]), WHO)
    new = await keys.local.rotate("ci", WHO, DAY_SECONDS)
    assert (await keys.found(old.text), await keys.found(new.text)) == (True, True)
    assert (await keys.local.all())[0].old_secret_until is not None
    keys.clock.advance(DAY_SECONDS)
    assert (await keys.found(old.text), await keys.found(new.text)) == (False, True)
    newest = await keys.local.rotate(new.key.id, WHO, 0)
    assert (await keys.found(new.text), await keys.found(newest.text)) == (False, True)
    with pytest.raises(InvalidInput):
        await keys.local.rotate("ci", WHO, 8 * DAY_SECONDS)


async def test_a_key_expires():
    keys = Keys()
    until_us = keys.clock.now_us() + 60 * MICROSECONDS
    made = await keys.local.create(
        KeyRequest(name="ci", roles=["viewer"], expires_at_us=until_us), WHO
    )
    assert await keys.found(made.text)
    keys.clock.advance(60)
    assert not await keys.found(made.text)
    assert (await keys.local.all())[0].state == "expired"


async def test_a_use_is_stored_once_a_minute():
    keys = Keys()
    made = await keys.local.create(KeyRequest(name="ci", roles=["viewer"]), WHO)
    key = await keys.local.find(made.text)
    assert key is not None
    await keys.local.used(key, "10.0.0.1")
    first = (await keys.local.all())[0].last_used_at
    keys.clock.advance(30)
    await keys.local.used(key, "10.0.0.2")
    assert (await keys.local.all())[0].last_used_at == first
    keys.clock.advance(30)
    await keys.local.used(key, "10.0.0.2")
    assert (await keys.local.all())[0].last_used_from == "10.0.0.2"


@pytest.mark.parametrize(
    "wrong",
    [
        KeyRequest(name="", roles=["viewer"]),
        KeyRequest(name="ci", roles=[]),
        KeyRequest(name="ci", roles=["root"]),
        KeyRequest(name="ci", roles=["viewer"], tenants=[""]),
        KeyRequest(name="ci", roles=["viewer"], scopes=["a"]),
        KeyRequest(name="ci", roles=["viewer"], scopes=["a//b"], tenants=["t"]),
        KeyRequest(name="ci", roles=["viewer"], tenants=["t"] * 101),
        KeyRequest(name="ci", roles=["viewer"], expires_at_us=1),
        KeyRequest(name="taken", roles=["viewer"]),
    ],
)
async def test_bad_requests_are_refused_and_nothing_is_stored(wrong):
    keys = Keys()
    await keys.local.create(KeyRequest(name="taken", roles=["viewer"]), WHO)
    with pytest.raises(InvalidInput):
        await keys.local.create(wrong, WHO)
    assert [one.name for one in await keys.local.all()] == ["taken"]
    for act in (keys.local.revoke("no", WHO), keys.local.rotate("no", WHO, 0)):
        with pytest.raises(UnknownKey):
            await act


async def test_only_who_manages_keys_may_touch_them():
    keys = Keys()
    await keys.local.create(KeyRequest(name="ci", roles=["viewer"]), WHO)
    for role in set(Role) - {Role.ADMIN}:
        other = keys.of(Principal(name="x", roles=(role,)))
        for act in (
            other.create(KeyRequest(name="mine", roles=["viewer"]), WHO),
            other.all(),
            other.rotate("ci", WHO, 0),
            other.revoke("ci", WHO),
        ):
            with pytest.raises(Forbidden):
                await act


async def test_an_admin_of_one_tenant_makes_and_sees_keys_of_it_alone():
    keys = Keys()
    everywhere = await keys.local.create(KeyRequest(name="all", roles=["viewer"]), WHO)
    await keys.local.create(KeyRequest(name="b", roles=["viewer"], tenants=["b"]), WHO)
    caller = Caller("a", ("library:42",))
    admin = keys.of(Principal(name="x", roles=(Role.ADMIN,), caller=caller))
    mine = KeyRequest(name="m", roles=["admin"], tenants=["a"], scopes=["library:42/book:7"])
    await admin.create(mine, WHO)
    assert [one.name for one in await admin.all()] == ["m"]
    for name in (everywhere.key.id, "all", "b"):
        with pytest.raises(UnknownKey):
            await admin.revoke(name, WHO)
    for more in (
        KeyRequest(name="n", roles=["viewer"]),
        KeyRequest(name="n", roles=["viewer"], tenants=["b"]),
        KeyRequest(name="n", roles=["viewer"], tenants=["a"]),
        KeyRequest(name="n", roles=["viewer"], tenants=["a", "b"]),
        KeyRequest(name="n", roles=["viewer"], tenants=["a"], scopes=["library:43"]),
        KeyRequest(name="n", roles=["viewer"], tenants=["a"], scopes=["library:4"]),
    ):
        with pytest.raises(AccessDenied):
            await admin.create(more, WHO)


@given(st.integers(0, 66), st.sampled_from("0aZ_-"))
def test_a_typing_error_is_found_without_the_store(place, letter):
    text = str(new_key_text(token_bytes))
    assert read_key_text(text) is not None
    changed = text[:place] + letter + text[place + 1 :]
    assert (read_key_text(changed) is None) == (changed != text)


@given(st.text(max_size=100))
def test_other_text_is_no_key(text):
    assert read_key_text(text) is None
