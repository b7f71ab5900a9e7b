"""Who reaches what."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.access import SYSTEM, Caller

LIBRARIAN = Caller(tenant="acme", scopes=("library:42",))
PATHS = st.lists(st.text("ab:1", min_size=1, max_size=3), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        ("library:42", True),
        ("library:42/book:7", True),
        ("library:42/book:7/page:1", True),
        ("library:421", False),
        ("library:421/book:7", False),
        ("library:4", False),
        ("library", False),
        ("", False),
        ("library:43/book:7", False),
        ("city:1/library:42", False),
        ("Library:42", False),
        ("library:42.book:7", False),
    ],
)
def test_a_scope_reaches_itself_and_what_is_below_it(scope: str, reached: bool) -> None:
    assert LIBRARIAN.can_access("acme", scope) is reached


def test_a_scope_below_does_not_reach_its_parent_or_its_sibling() -> None:
    reader = Caller(tenant="acme", scopes=("library:42/book:7",))
    assert reader.can_access("acme", "library:42/book:7/page:1")
    assert not reader.can_access("acme", "library:42")
    assert not reader.can_access("acme", "library:42/book:70")
    assert not reader.can_access("acme", "library:42/book:8")


@pytest.mark.parametrize("tenant", ["other", "acme2", "acm", "", "ACME"])
def test_nobody_reaches_into_another_tenant(tenant: str) -> None:
    assert not LIBRARIAN.can_access(tenant, "library:42")
    assert not Caller(tenant="acme").can_access(tenant, "")


def test_no_scopes_is_every_scope_of_the_tenant() -> None:
    caller = Caller(tenant="acme")
    assert caller.can_access("acme", "")
    assert caller.can_access("acme", "library:42/book:7")


def test_no_tenant_is_every_tenant_within_the_scopes() -> None:
    caller = Caller(scopes=("library:42",))
    assert caller.can_access("acme", "library:42")
    assert caller.can_access("other", "library:42/book:7")
    assert not caller.can_access("acme", "library:43")


def test_any_one_of_several_scopes_is_enough() -> None:
    caller = Caller(tenant="acme", scopes=("library:1", "library:42"))
    assert caller.can_access("acme", "library:42/book:7")
    assert caller.can_access("acme", "library:1")
    assert not caller.can_access("acme", "library:2")


def test_the_system_reaches_everything() -> None:
    assert SYSTEM.can_access("acme", "library:42")
    assert SYSTEM.can_access("", "")


@pytest.mark.parametrize(
    ("caller", "unlimited"),
    [
        (SYSTEM, True),
        (Caller(), True),
        (Caller(tenant="acme"), False),
        (Caller(tenant=""), False),
        (Caller(scopes=("a",)), False),
        (LIBRARIAN, False),
    ],
)
def test_only_who_is_bound_to_nothing_is_unlimited(caller: Caller, unlimited: bool) -> None:
    assert caller.unlimited is unlimited


@settings(deadline=None)
@given(held=PATHS, asked=PATHS)
def test_containment_is_by_whole_steps_of_the_path(held: list[str], asked: list[str]) -> None:
    caller = Caller(scopes=("/".join(held),))
    assert caller.can_access("acme", "/".join(asked)) is (asked[: len(held)] == held)
    assert caller.can_access("acme", "/".join(held + asked))
