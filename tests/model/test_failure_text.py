"""What is stored of an exception is bounded, readable, and can always be encoded."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.model.failure import (
    MESSAGE_LIMIT,
    NOTES_LIMIT,
    TRACEBACK_LIMIT,
    Classifier,
    Failure,
)
from holdfast.model.job import Job
from holdfast.model.retry import RetryPolicy
from holdfast.model.signals import Dead
from holdfast.worker.verdicts import Verdicts

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def caught(act: Callable[[], object]) -> Failure:
    """The failure of what this raises, after a round through the encoding it is stored in."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - that is what a worker does
        failure = Classifier().classify(error, NOW)
        encoded = msgspec.msgpack.encode(failure)
        assert msgspec.msgpack.decode(encoded, type=Failure) == failure
        return failure
    pytest.fail("it did not raise")


def throw(error: Exception) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


def test_a_message_names_the_type_and_says_what_it_said() -> None:
    assert caught(throw(ValueError("no such book"))).message == "ValueError: no such book"
    assert caught(throw(ValueError())).message == "ValueError: "


def test_a_traceback_shows_where_it_was_raised() -> None:
    failure = caught(throw(ValueError("x")))
    assert __file__ in failure.traceback
    assert "in act\n    raise error\n" in failure.traceback


def test_notes_are_kept_below_the_traceback() -> None:
    error = ValueError("no such book")
    error.add_note("while importing shelf 7")
    error.add_note("row 12\nof books.csv")
    failure = caught(throw(error))
    assert failure.message == "ValueError: no such book"  # what is grouped stays the same
    assert failure.traceback.endswith(
        "    raise error\nwhile importing shelf 7\nrow 12\nof books.csv\n"
    )


def test_notes_are_bounded_and_do_not_displace_the_traceback() -> None:
    error = ValueError("x")
    for number in range(1_000):
        error.add_note(f"note {number} " + "y" * 1_000_000)
    failure = caught(throw(error))
    assert "in act\n    raise error\nnote 0 yyy" in failure.traceback
    assert len(failure.traceback) < NOTES_LIMIT + 1_000


@pytest.mark.parametrize("notes", ["text", 7, None, [7, None], ["\ud800 \0"], ()], ids=repr)
def test_notes_of_any_kind_do_no_harm(notes: object) -> None:
    error = ValueError("x")
    error.__notes__ = notes  # type: ignore[assignment]
    failure = caught(throw(error))
    assert failure.message == "ValueError: x"
    assert "raise error" in failure.traceback


def test_notes_that_cannot_be_read_do_no_harm() -> None:
    broken = type("Broken", (ValueError,), {"__notes__": property(lambda self: 1 / 0)})
    assert caught(throw(broken("x"))).message == "Broken: x"


def test_a_signal_keeps_its_notes_too() -> None:
    error = Dead("never")
    error.add_note("ask accounting")
    job = Job("j", "default", "", "q", "t", b"{}", 0, 3, 0, 0, 1, token=1, attempt=1)
    failure = Verdicts(Classifier(), RetryPolicy()).of_error(job, None, error).failure
    assert failure is not None
    assert failure.traceback == "ask accounting\n"


def test_an_exception_that_was_never_raised_has_no_traceback() -> None:
    assert Classifier().classify(ValueError("x"), NOW).traceback == ""


def test_a_huge_message_keeps_its_beginning() -> None:
    message = caught(throw(ValueError("start " + "x" * 10_000_000))).message
    assert len(message) == MESSAGE_LIMIT
    assert message.startswith("ValueError: start xxx")
    assert message.endswith("x…")


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_message_is_cut_only_past_the_limit(over: int) -> None:
    text = "x" * (MESSAGE_LIMIT - len("ValueError: ") + over)
    message = caught(throw(ValueError(text))).message
    assert len(message) == min(MESSAGE_LIMIT, MESSAGE_LIMIT + over)
    assert message.endswith("…") is (over > 0)


def test_a_huge_class_name_is_cut_too() -> None:
    error = type("E" * 100_000, (Exception,), {})("x")
    assert len(caught(throw(error)).message) == MESSAGE_LIMIT


def dig(depth: int) -> None:
    if depth:
        dig(depth - 1)
    else:
        the_bottom()


def the_bottom() -> None:
    raise ValueError("bottom")


def test_a_deep_traceback_keeps_its_end() -> None:
    failure = caught(lambda: dig(500))
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert failure.traceback.count('File "') <= 50
    assert failure.traceback.endswith('    raise ValueError("bottom")\n')


def test_a_runaway_recursion_is_bounded() -> None:
    def forever() -> None:
        forever()

    failure = caught(forever)
    assert failure.message.startswith("RecursionError: ")
    assert 0 < len(failure.traceback) <= TRACEBACK_LIMIT


def test_a_traceback_of_long_lines_is_cut_at_its_beginning() -> None:
    # Two that call each other: the same line over and over would be written once.
    ping, pong = "i" * 2_000, "o" * 2_000
    scope: dict[str, Callable[[int], None]] = {}
    source = f"def {ping}(n): {pong}(n)\ndef {pong}(n): {ping}(n - 1) if n else 1 / 0\n"
    exec(compile(source, "none.py", "exec"), scope)  # noqa: S102 - to have such names at all
    failure = caught(lambda: scope[ping](9))
    assert len(failure.traceback) == TRACEBACK_LIMIT
    assert failure.traceback[:2] in {"…i", "…o"}
    assert failure.traceback.endswith(f"line 2, in {pong}\n")


class Unreadable(Exception):
    def __init__(self, why: Exception) -> None:
        super().__init__()
        self.why = why

    def __str__(self) -> str:
        raise self.why


@pytest.mark.parametrize("why", [RuntimeError("no"), RecursionError(), UnicodeError("no")])
def test_an_exception_without_a_readable_text_is_still_a_failure(why: Exception) -> None:
    failure = caught(throw(Unreadable(why)))
    expected = f"Unreadable: <its text could not be read: {type(why).__name__}>"
    assert failure.message == expected


def test_a_text_that_is_no_string_is_still_a_failure() -> None:
    error = type("Odd", (Exception,), {"__str__": lambda self: 5})()
    assert caught(throw(error)).message == "Odd: <its text could not be read: TypeError>"


def test_lone_surrogates_are_written_out() -> None:
    failure = caught(throw(ValueError("name \udcff\ud800 \U0001f600 é\x00")))
    assert failure.message == "ValueError: name \\udcff\\ud800 \U0001f600 é␀"


def test_a_message_of_surrogates_is_bounded_as_it_is_written() -> None:
    assert len(caught(throw(ValueError("\ud800" * 1_000))).message) == MESSAGE_LIMIT


def test_a_surrogate_in_a_file_name_is_written_out() -> None:
    scope: dict[str, Callable[[], None]] = {}
    code = compile("def act():\n    raise ValueError('x')\n", "odd.py", "exec")
    exec(code.replace(co_filename="odd-\udcff.py"), scope)  # noqa: S102 - no such file exists
    scope["act"].__code__ = scope["act"].__code__.replace(co_filename="odd-\udcff.py")
    assert "odd-\\udcff.py" in caught(scope["act"]).traceback
