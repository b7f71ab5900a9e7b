"""Events as NDJSON: checked as one event is, wrong lines alone refused, and a resend is safe."""

import json

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.permissions import Role
from holdfast.testing import SimDisk

from .rig import Api, opened

COUNT = 1_500
UUID = "00000000-0000-7000-8000-{:012d}"


def event(number: int, **change: object) -> dict[str, object]:
    payload = {"book_id": f"b{number}", "title": "Dune"}
    return {"event_type": "book.added", "id": UUID.format(number), "payload": payload, **change}


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in events)


async def sent(
    api: Api, text: bytes, query: str = ""
) -> tuple[int, list[dict[str, object]], dict[str, object]]:
    """Return the status, what the lines were answered, and the summary."""
    name = f"sender{len(await api.engine.records('key'))}"
    key = await api.key(Role.PRODUCER, name=name)
    got = await api.call(key, "POST", f"/v2/events:ingest{query}", body=text)
    answers = [json.loads(line) for line in got.text.splitlines()]
    return got.status_code, answers[:-1], answers[-1].get("summary", answers[-1])


async def resent(text: bytes) -> None:
    """Send the same twice, and find every event once."""
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        key = await api.key(Role.PRODUCER)
        for created in (COUNT, 0):
            got = await api.call(key, "POST", "/v2/events:ingest", body=text)
            answers = [json.loads(line) for line in got.text.splitlines()]
            assert len(answers) == COUNT + 1
            summary = answers[-1]["summary"]
            assert (summary["created"], summary["existing"]) == (created, COUNT - created)
        assert await engine.count_events() == COUNT


async def test_a_resend_stores_every_event_once():
    await resent(lines(*map(event, range(COUNT))))


async def test_control_without_ids_a_resend_is_noticed():
    with pytest.raises(AssertionError):
        await resent(lines(*(event(number, id=None) for number in range(COUNT))))


async def test_only_wrong_lines_are_refused_and_name_their_field():
    async with opened() as api:
        await api.event(UUID.format(9), "acme", title="Emma")
        wrong_title = event(2, payload={"book_id": "b2", "title": 7})
        text = lines(
            event(1),
            wrong_title,
            event(3, event_type="book.lost"),
            event(4, tenant="other"),
            event(9),
            event(1),
            event(5),
        )
        status, answers, summary = await sent(api, text + b"{")
        assert status == 200
        told = [(one["line"], one.get("type", "")[10:], one.get("existing")) for one in answers]  # type: ignore[index]
        assert told == [
            (1, "", None),
            (2, "invalid-input", None),
            (3, "invalid-input", None),
            (4, "invalid-input", None),
            (5, "conflict", None),
            (6, "", True),
            (7, "", None),
            (8, "malformed-json", None),
        ]
        pointers = [one["errors"][0]["pointer"] for one in answers[1:3]]  # type: ignore[index]
        assert pointers == ["/payload/title", "/event_type"]
        assert (summary["created"], summary["existing"], summary["refused"]) == (2, 1, 5)
        assert await api.engine.count_events() == 3


async def test_the_actor_is_the_key_whatever_a_line_says():
    async with opened() as api:
        await sent(api, lines(event(1, actor_user_id="root", actor_name="Root")))
        (stored,) = await api.engine.get_events([UUID.format(1)], tenant="acme")
        assert stored is not None
        assert (stored.actor_type, stored.actor_id, stored.actor_name) == ("service", "sender0", "")


async def test_atomic_stores_all_or_nothing_and_stop_ends_at_the_first():
    async with opened() as api:
        text = lines(event(1)) + b"{\n" + lines(event(2))
        status, _answers, problem = await sent(api, text, "?atomic=1")
        assert (status, problem["type"]) == (422, "/problems/invalid-input")
        assert await api.engine.count_events() == 0
        _status, _answers, summary = await sent(api, text, "?stop=first")
        assert (summary["created"], summary["stopped"]) == (1, "first")
        status, _answers, problem = await sent(api, text, "?on_duplicate=skip")
        assert (status, problem["type"]) == (400, "/problems/unknown-parameter")
