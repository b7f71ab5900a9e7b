"""The shape of a message: what varies is taken out, what tells is left."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import fingerprint as module
from holdfast.model.fingerprint import FINGERPRINT_LIMIT, FINGERPRINT_VERSION, fingerprint


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        ("", ""),
        ("  timed out \n", "timed out"),
        ("503 from the mail server", "<number> from the mail server"),
        ("took 1.5 s, 3,000 rows, -7", "took <number> s, <number> rows, <number>"),
        ("line 7\nline 8", "line <number>"),
        ("no user 'ann' in \"staff\"", "no user <text> in <text>"),
        ("GET https://example.org/a?b=1 failed", "GET <url> failed"),
        ("redis://10.0.0.1:6379/0 is down", "<url> is down"),
        ("no route to 10.1.2.3:8080", "no route to <address>"),
        ("no route to [fe80::1]:80", "no route to <address>"),
        ("job 0190c2f0-5d3c-7aaa-8bbb-0123456789ab is gone", "job <uuid> is gone"),
        ("object at 0x7f3a9c", "object at <hex>"),
        ("commit 9f86d081884c7d65", "commit <hex>"),
        ("no such file /var/lib/holdfast/1.log", "no such file <path>"),
        ("mail to ann@example.org bounced", "mail to <email> bounced"),
        ("and/or it is a word", "and/or it is a word"),
        ("deadbeef is a word of letters alone", "deadbeef is a word of letters alone"),
        ("a   b\tc", "a b c"),
    ],
)
def test_what_varies_becomes_a_mark(message: str, shape: str) -> None:
    assert fingerprint(message) == shape


def test_messages_that_differ_in_what_varies_alone_have_one_shape() -> None:
    shapes = {
        fingerprint(f"row {number} of '{number}.csv' at 10.0.0.{number} took {number / 7} s")
        for number in range(50)
    }
    assert len(shapes) == 1


@settings(deadline=None)
@given(st.text(max_size=800))
def test_a_shape_is_one_short_line_whatever_the_message(message: str) -> None:
    shape = fingerprint(message)
    assert len(shape) <= FINGERPRINT_LIMIT
    assert "\n" not in shape
    assert shape == " ".join(shape.split()) or len(shape) == FINGERPRINT_LIMIT


@pytest.mark.parametrize("piece", ["a.", "'", '"', "/a", "1.", "[:", "0x", "a@", "ab12", "://"])
def test_no_message_takes_long(piece: str) -> None:
    began = time.perf_counter()
    fingerprint(piece * 10_000)
    assert time.perf_counter() - began < 0.5


NOW = r"\[[0-9a-f]*:[0-9a-f:.]+\](?::\d+)?"
VERSION_1 = r"\[[0-9a-f:]*:[0-9a-f:.]+\](?::\d+)?"
"""How addresses of IPv6 were found when version 1 of the fingerprints was first stored: in
quadratic time."""
PIECES = (*(":]af09" * 3), "[", "::", ".", "G", "80", "fe80", "'", "/x/y", " ", "@")


def shapes_of(monkeypatch, texts: list[str], address: str) -> list[str]:
    """Return the fingerprints, with another way to find addresses."""
    monkeypatch.setattr(module, "_OTHERS", module._OTHERS.replace(NOW, address))
    made = module._varying.__wrapped__
    monkeypatch.setattr(module, "_varying", made)
    return [fingerprint.__wrapped__(text) for text in texts]


def drawn(count: int) -> list[str]:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    choose = random.Random(seed)
    return [
        choose.choice(("[", "no route to [", ""))
        + "".join(choose.choices(PIECES, k=choose.randint(0, 20)))
        for _text in range(count)
    ]


def test_fingerprints_are_those_that_version_1_began_with(monkeypatch):
    assert (FINGERPRINT_VERSION, NOW in module._OTHERS) == (1, True)
    texts = drawn(10_000)
    now = [fingerprint.__wrapped__(text) for text in texts]
    assert sum("<address>" in shape for shape in now) > 100
    assert shapes_of(monkeypatch, texts, VERSION_1) == now


def test_control_a_pattern_that_finds_others_is_noticed(monkeypatch):
    texts = drawn(10_000)
    now = [fingerprint.__wrapped__(text) for text in texts]
    assert shapes_of(monkeypatch, texts, NOW.replace("[0-9a-f]*:", "[0-9a-f]+:")) != now
