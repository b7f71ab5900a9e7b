"""Counts with their nouns."""

import pytest

from holdfast.model.plural import count_of


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "job", "1 job"),
        (0, "job", "0 jobs"),
        (6, "policy", "6 policies"),
        (1, "policy", "1 policy"),
        (2, "audit entry", "2 audit entries"),
        (2, "day", "2 days"),
        (3, "process", "3 processes"),
        (1_234, "batch", "1,234 batches"),
    ],
)
def test_a_noun_has_its_plural(count, noun, text):
    assert count_of(count, noun) == text
