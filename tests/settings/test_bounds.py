"""What comes from files and the environment is bounded before it is used."""

import pytest

from holdfast.model.errors import InvalidInput
from holdfast.settings import read, sources, yaml_text
from holdfast.settings.files import MAX_FILE_BYTES
from holdfast.settings.sources import MAX_VALUE_LENGTH
from holdfast.settings.yaml_text import MAX_DEPTH, MAX_NODES, parse_yaml

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""306 bytes that stand for 9 to the power of 9 texts."""


def problem_of(text: str) -> str:
    with pytest.raises(ValueError, match="line") as caught:
        parse_yaml(text)
    return str(caught.value)


def counted_nodes(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """Return how many nodes were composed before the text was refused."""
    seen = 0
    loader = yaml_text._loader()
    compose = loader.compose_node

    def counting(self, parent, index):
        nonlocal seen
        seen += 1
        return compose(self, parent, index)

    monkeypatch.setattr(loader, "compose_node", counting)
    problem_of(text)
    return seen


def test_an_alias_bomb_is_refused_at_its_first_alias(tmp_path, monkeypatch):
    assert "aliases (*name) are not allowed" in problem_of(BOMB)
    assert counted_nodes(monkeypatch, BOMB) < 20
    (tmp_path / "s.yaml").write_text(BOMB)
    report = read(str(tmp_path / "s.yaml"), environ={})
    assert "aliases (*name) are not allowed" in str(report.problems[0])


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_before_it_is_built(monkeypatch, opening):
    assert f"nested more than {MAX_DEPTH} levels" in problem_of(opening * 10_000)
    assert counted_nodes(monkeypatch, opening * 10_000) < 3 * MAX_DEPTH


def test_a_file_of_many_keys_and_values_is_refused():
    assert f"more than {MAX_NODES:,} keys" in problem_of("- a\n" * (MAX_NODES + 1))


@pytest.mark.parametrize(
    "number", ["1" + ":0" * 5_000, "!!int '1" + ":0" * 5_000 + "'", "9" * 5_000]
)
def test_a_number_that_takes_quadratic_time_is_refused(number):
    assert "put it in quotes" in problem_of(f"a: {number}")


def test_a_long_text_is_a_text():
    assert parse_yaml(f"a: {'word ' * 1_000}") == {"a": ("word " * 1_000).strip()}
    assert parse_yaml(f"a: '{'9' * 5_000}'") == {"a": "9" * 5_000}


@pytest.mark.parametrize("name", ["s.yaml", "s.toml"])
def test_a_settings_file_has_a_limit(tmp_path, name):
    (tmp_path / name).write_text("#" * (MAX_FILE_BYTES + 1))
    report = read(str(tmp_path / name), environ={})
    assert f"more than {MAX_FILE_BYTES:,} bytes" in str(report.problems[0])


def test_a_value_of_the_environment_or_a_flag_has_a_limit():
    long = "x" * (MAX_VALUE_LENGTH + 1)
    for report in (
        read(None, environ={"HOLDFAST_QUEUES": long}),
        read(None, environ={}, flags={"queues": long}),
    ):
        assert [
            f"more than {MAX_VALUE_LENGTH:,} characters" in str(one) for one in report.problems
        ] == [True]


def test_names_are_compared_for_some_problems_only(monkeypatch, tmp_path):
    looked = []

    def nearest(name, *_others):
        looked.append(name)
        return ""

    monkeypatch.setattr(sources, "_nearest", nearest)
    unknown = {f"HOLDFAST_SETTING{n}": "x" for n in range(2_000)}
    (tmp_path / "s.yaml").write_text("".join(f"setting{n}: x\n" for n in range(2_000)))
    report = read(str(tmp_path / "s.yaml"), environ=unknown)
    assert (len(report.problems), len(report.warnings)) == (2_000, 2_000)
    assert len(looked) == 40


def test_what_is_quoted_of_a_long_name_is_cut(tmp_path):
    (tmp_path / "s.yaml").write_text(f"? {'n' * 60_000}\n: 1\n")
    (problem,) = read(str(tmp_path / "s.yaml"), environ={}).problems
    assert isinstance(problem, InvalidInput)
    assert len(str(problem)) < 3_000
