"""``holdfast keys``."""

from __future__ import annotations

import json

from holdfast.model.api_key import read_key_text

from .conftest import Command

WHY = ("--by", "ann", "--reason", "a test")


def test_a_key_is_made_listed_rotated_and_revoked(hold: Command) -> None:
    assert "no keys" in hold("keys", "list").output
    made = hold("keys", "create", "ci", "--role", "producer", "--tenant", "acme", *WHY)
    assert made.exit_code == 0
    text = made.stdout.strip()
    assert read_key_text(text) is not None
    listed = hold("keys", "list").output
    assert "ci" in listed
    assert "acme" in listed
    assert text not in listed
    rotated = hold("keys", "rotate", "ci", "--overlap", "1h", "--json", *WHY)
    assert read_key_text(json.loads(rotated.stdout)["text"]) is not None
    assert hold("keys", "revoke", "ci", *WHY).exit_code == 0
    assert json.loads(hold("keys", "list", "--json").stdout) == []
    audit = hold("audit", "list", "--json").output
    assert all(action in audit for action in ("key.create", "key.rotate", "key.revoke"))
    assert text not in audit


def test_bad_input_is_refused(hold: Command) -> None:
    assert hold("keys", "create", "ci", "--role", "root", *WHY).exit_code == 2
    assert hold("keys", "create", "ci", *WHY).exit_code == 2
    assert hold("keys", "create", "ci", "--role", "admin").exit_code == 2
    assert hold("keys", "create", "ci", "--role", "admin", "--expires-in", "x", *WHY).exit_code == 2
    assert hold("keys", "revoke", "ci", *WHY).exit_code == 3
    assert hold("keys", "rotate", "ci", *WHY).exit_code == 3
    assert json.loads(hold("keys", "list", "--json").stdout) == []
