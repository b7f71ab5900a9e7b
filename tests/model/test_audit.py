"""Who and why, and the chain of the audit."""

import pytest
from msgspec.structs import replace

from holdfast.model.audit import (
    Attribution,
    AuditEntry,
    AuditHead,
    AuditRecord,
    chain,
    check_text,
    follows,
    head_of,
)
from holdfast.model.errors import InvalidInput

ENTRY = AuditEntry("replay", "job", "j1", "ann", '{"n":1}', "it is back", "acme")


def records(count: int = 4) -> list[AuditRecord]:
    head, found = AuditHead(), []
    for number in range(count):
        found.append(chain(head, replace(ENTRY, resource_id=f"j{number}"), 100 + number))
        head = head_of(found[-1])
    return found


def whole(found: list[AuditRecord]) -> bool:
    head = AuditHead()
    for record in found:
        if not follows(head, record):
            return False
        head = head_of(record)
    return True


def test_records_are_numbered_from_one_and_each_holds_the_hash_before_it() -> None:
    found = records()
    assert [record.number for record in found] == [1, 2, 3, 4]
    assert found[0].previous_hash == ""
    assert [record.previous_hash for record in found[1:]] == [record.hash for record in found[:-1]]
    assert whole(found)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(
    "change",
    [
        {"number": 9},
        {"at_us": 9},
        {"hash": "0" * 64},
        {"previous_hash": "0" * 64},
        *({"entry": replace(ENTRY, **{field: "x"})} for field in AuditEntry.__struct_fields__),
    ],
    ids=str,
)
def test_a_changed_record_breaks_the_chain(at, change):
    found = records()
    found[at] = replace(found[at], **change)
    assert not whole(found)


def test_a_record_left_out_put_in_or_moved_breaks_the_chain() -> None:
    found = records()
    assert not whole([found[0], *found[2:]])
    assert not whole([found[0], found[0], *found[1:]])
    assert not whole([found[1], found[0], *found[2:]])
    assert whole(found[:2]), "what is cut off at the end is told by the head alone"
    assert head_of(found[1]) != head_of(found[3])


def test_a_changed_record_that_is_hashed_anew_breaks_what_follows() -> None:
    found = records()
    found[1] = chain(head_of(found[0]), replace(ENTRY, user_id="eve"), 101)
    assert follows(head_of(found[0]), found[1])
    assert not follows(head_of(found[1]), found[2])


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (replace(ENTRY, action=""), "action"),
        (replace(ENTRY, action=" "), "action"),
        (replace(ENTRY, resource_type="x" * 201), "resource_type"),
        (replace(ENTRY, resource_id="x" * 4_001), "resource_id"),
        (replace(ENTRY, user_id=7), "user_id"),
        (replace(ENTRY, tenant="\ud800"), "tenant"),
        (replace(ENTRY, reason=None), "reason"),
        (replace(ENTRY, changes=""), "changes"),
        (replace(ENTRY, changes="[1]"), "changes"),
        (replace(ENTRY, changes="{"), "changes"),
        (replace(ENTRY, changes="{" + " " * 70_000 + "}"), "changes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_entry_that_makes_no_sense_names_the_field(entry, field):
    for check in (entry.check, Attribution("ann", "why", (ENTRY, entry)).check):
        with pytest.raises(InvalidInput) as refused:
            check()
        assert refused.value.field == field


def test_resource_reason_and_tenant_may_be_empty() -> None:
    AuditEntry("login", "console", "", "ann").check()
    Attribution("ann", "because", (ENTRY,)).check()


@pytest.mark.parametrize(
    ("attribution", "field"),
    [
        (Attribution("", "why"), "by"),
        (Attribution("x" * 201, "why"), "by"),
        (Attribution("ann", ""), "why"),
        (Attribution("ann", "\t"), "why"),
        (Attribution("ann", "x" * 4_001), "why"),
        (Attribution("ann", "\udfff"), "why"),
        (Attribution(None, "why"), "by"),  # type: ignore[arg-type]
        (Attribution("ann", "why", [ENTRY]), "audit"),  # type: ignore[arg-type]
        (Attribution("ann", "why", ("login",)), "audit"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operation_says_who_and_why(attribution: Attribution, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        attribution.check()
    assert refused.value.field == field


def test_a_text_is_given_back_or_refused() -> None:
    assert check_text("text", "look here") == "look here"
    with pytest.raises(InvalidInput, match="text"):
        check_text("text", " \n")
