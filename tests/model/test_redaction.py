"""The second wall: secrets are taken out of texts that people read."""

import pytest

from holdfast.model.redaction import names_a_secret, without_secrets

CANARY = "hunter2canary"


@pytest.mark.parametrize(
    "text",
    [
        f"password={CANARY}",
        f"PGPASSWORD={CANARY}",
        f"SECRET_KEY={CANARY}",
        f"clientSecret={CANARY}",
        f"accessToken: {CANARY}",
        f"sslpassword={CANARY}&sslmode=on",
        f'{{"password": "{CANARY}"}}',
        f'{{\\"password\\": \\"{CANARY}\\"}}',
        f'"db_password": "a\\"{CANARY}"',
        f"Authorization: token {CANARY}",
        f"authorization: Bearer {CANARY}",
        f"Cookie: a=b; session={CANARY}",
        f"api_key='{CANARY}'",
        f"postgresql://user:{CANARY}@host/db",
        f"https://ghp_{CANARY}@example.org/x",
    ],
)
def test_a_secret_is_hidden(text):
    assert CANARY not in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user@host/db",
        "12 jobs passed; compass: north",
        "http://127.0.0.1:9090/metrics",
        "author: ada, monkey=3, keyboard: de",
        "queue=mail attempt=3 worker=own/host-1",
    ],
)
def test_what_is_no_secret_stays(text):
    assert without_secrets(text) == text


def test_names_of_secrets():
    for name in (
        "secret_key",
        "encryption_key",
        "signing_key",
        "clientSecret",
        "PGPASSWORD",
        "dsn",
    ):
        assert names_a_secret(name), name
    for name in ("queue", "key", "job", "monkey", "author", "passed", "seconds", "attempt"):
        assert not names_a_secret(name), name
