"""``projections``, ``projection new``, ``rebuild`` and ``chronicle`` on a journal."""

import json
import subprocess
import sys

import pytest

from holdfast.cli.output import _width
from holdfast.cli.projection_output import progress_line
from holdfast.model.projection import Rebuild, RebuildMode, RebuildPhase
from tests.e2e.rig import until

from .conftest import Daemon, invoke
from .shop import owner_of

CATALOG = """
events:
  book.renamed:
    entity: book
    fields: {isbn: {type: string, required: false, sensitive: true}}
    state: {title: string, pages: {type: string, required: false}}
    text: '{actor} renamed {entity} to {after.title}'
    change: before_and_after
"""
MAPPING = """
projections:
  titles:
    events: [book.renamed]
    key: [book]
    columns:
      book: {from: entity_id}
      pages: {from: after.pages, type: integer}
"""
ROWS = """
projections:
  titles:
    events: [book.renamed]
    key: [book]
    columns:
      book: {from: entity_id}
      title: {from: after.title, type: text, search: true}
      renamed_at: {from: occurred_at}
"""


def renamed(number, title="Emma", **state):
    return {
        "event_type": "book.renamed",
        "entity_id": str(number),
        "actor_user_id": "anna",
        "occurred_at": f"2026-11-1{number}T10:00:00Z",
        "payload": {"isbn": "secret"},
        "before": {"title": "old"},
        "after": {"title": title, **state},
        "reason": "typo",
    }


@pytest.fixture
def books(here, hold):
    """A store with five events, two of which have Chinese titles."""
    (here / "catalog.yaml").write_text(CATALOG)
    titles = ("Emma", "红楼梦", "Faust", "西游记的故事", "Ulysses")
    events = [renamed(number, title) for number, title in enumerate(titles)]
    assert hold("events", "append", stdin=json.dumps(events)).exit_code == 0
    return hold


def answer(result, code=0):
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_rebuild_fills_the_chronicle_and_everything_can_be_asked(books):
    assert "no worker has entered anything yet" in books("chronicle", "list").stderr
    result = books("rebuild", "chronicle", "--by", "ops", "--reason", "first")
    assert result.exit_code == 0, result.output
    assert "chronicle is rebuilt: 5 events" in result.stdout
    assert "generation 2 is live" in result.stdout
    [view] = answer(books("projections", "list", "--json"))
    assert (view["name"], view["state"], view["generation"]) == ("chronicle", "live", 2)
    assert (view["last_rebuild"]["by"], view["last_rebuild"]["why"]) == ("ops", "first")
    assert "generation:    2 (version 1)" in books("projections", "show", "chronicle").stdout
    page = answer(books("chronicle", "search", "红楼", "--json"))
    [entry] = page["entries"]
    assert entry["text"] == "anna renamed book 1 to 红楼梦"
    assert entry["payload"] == {"isbn": "***"}
    shown = books("chronicle", "show", entry["id"]).stdout
    assert 'title: "old" → "红楼梦"' in shown
    assert "secret" not in shown
    assert "secret" in books("chronicle", "show", entry["id"], "--sensitive").stdout
    assert "user:anna      5" in books("chronicle", "stats", "--by", "actor").stdout


def test_pages_of_the_chronicle_go_by_cursor_and_columns_are_aligned(books):
    books("rebuild", "chronicle")
    page = answer(books("chronicle", "list", "--limit", "2", "--json"))
    more = answer(books("chronicle", "list", "--limit", "2", "--cursor", page["next"], "--json"))
    assert [one["entity_id"] for one in page["entries"] + more["entries"]] == ["4", "3", "2", "1"]
    table = books("chronicle", "list").stdout.splitlines()
    ends = {_width(line[: line.index("book:")]) for line in table[1:]}
    assert ends == {table[0].index("ENTITY")}
    assert books("chronicle", "list", "--cursor", "x").exit_code == 2


def test_rows_of_a_projection_are_shown(books, here):
    (here / "projections.yaml").write_text(ROWS)
    early = books("projections", "rows", "titles")
    assert "no worker has filled titles yet" in early.stderr
    assert books("rebuild", "titles").exit_code == 0
    assert books("projections", "rows", "titles", "--order", "-book").stdout.splitlines()[:2] == [
        "BOOK  TITLE         RENAMED_AT",
        "4     Ulysses       2026-11-14 10:00:00",
    ]
    found = answer(books("projections", "rows", "titles", "--search", "红楼", "--json"))
    assert found == [{"book": "1", "title": "红楼梦", "renamed_at": "2026-11-11T10:00:00Z"}]
    when = "--where", "renamed_at=2026-11-10T10:00:00Z"
    assert [
        one["title"] for one in answer(books("projections", "rows", "titles", *when, "--json"))
    ] == ["Emma"]
    assert "no rows" in books("projections", "rows", "titles", "--where", "book=9").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("titles", "--where", "book"), "--where: 'book' is not COLUMN=VALUE"),
        (("titles", "--where", "book=1", "--where", "book=2"), "each column once"),
        (("titles", "--where", "isbn=1"), "titles has no column 'isbn'"),
        (("titles", "--where", "renamed_at=noon"), "renamed_at: 'noon' is not a timestamp"),
        (("titles", "--order", "isbn"), "titles has no such column"),
        (("nothing",), "no projection 'nothing' is declared here"),
        (("chronicle",), "ask it by `holdfast chronicle`, which hides what is sensitive"),
    ],
)
def test_rows_that_cannot_be_asked_for_are_refused(books, here, words, said):
    (here / "projections.yaml").write_text(ROWS)
    books("rebuild", "titles")
    refused = books("projections", "rows", *words)
    assert refused.exit_code != 0
    assert said in refused.stderr
    assert "secret" not in refused.output


def test_in_place_and_through_the_outbox(books):
    assert answer(books("rebuild", "chronicle", "--truncate", "--json"))["rows"] == 5
    emitted = books("rebuild", "chronicle", "--truncate", "--emit-outbox")
    assert emitted.exit_code == 0
    assert "5 events of chronicle emitted" in emitted.stdout
    counts = answer(books("projections", "outbox", "chronicle", "--count", "--json"))
    assert counts == {"pending": 5, "processing": 0, "done": 0, "failed": 0}
    rows = answer(books("projections", "outbox", "chronicle", "--status", "pending", "--json"))
    assert len(rows["rows"]) == 5
    assert "5 events not entered yet" in books("chronicle", "list").stderr
    refused = books("projections", "remove", "chronicle", "--reason", "try")
    assert (refused.exit_code, "--pending" in refused.stderr) == (2, True)
    removed = books("projections", "remove", "chronicle", "--reason", "try", "--pending", "cancel")
    assert "5 jobs cancelled, 0 kept" in removed.stdout


def test_a_rebuild_that_fails_says_at_what_and_is_resumed(books, here):
    (here / "projections.yaml").write_text(MAPPING)
    stored = books("events", "append", stdin=json.dumps([renamed(7, pages="many")]))
    assert stored.exit_code == 0, stored.output
    failed = books("rebuild", "titles")
    assert failed.exit_code == 1
    assert "holds integer there, not a str" in failed.stdout
    assert "--resume" in failed.stderr
    running = books("rebuild", "titles")
    assert (running.exit_code, "is being rebuilt already" in running.stderr) == (4, True)
    assert "rebuild failed" in books("projections", "list").stdout
    found = answer(books("doctor", "--json"), code=1)["findings"]
    [wrong] = [one for one in found if one["check"] == "projections"]
    assert wrong["verdict"] == "wrong"
    assert "titles was not rebuilt" in wrong["said"]
    done = answer(books("rebuild", "titles", "--resume", "--max-errors", "1", "--json"))
    assert (done["phase"], done["failed"]) == ("done", 1)
    rolled = books("projections", "rollback", "titles", "--reason", "back")
    assert rolled.stdout == "readers of titles see generation 1 again\n"


def test_a_stored_rebuild_is_cancelled(books):
    stored = answer(books("rebuild", "chronicle", "--detach", "--json"))
    assert stored["phase"] == "starting"
    cancelled = books("rebuild", "chronicle", "--cancel", "--reason", "not now")
    assert (cancelled.exit_code, "is cancelled" in cancelled.stdout) == (0, True)
    assert books("rebuild", "chronicle", "--cancel").exit_code == 2


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("rebuild", "nothing"), 3, "no projection 'nothing' is declared here; known: chronicle"),
        (("rebuild", "chronicle", "--emit-outbox"), 2, "add --truncate"),
        (("rebuild", "chronicle", "--resume", "--cancel"), 2, "give one of"),
        (("rebuild", "chronicle", "--resume"), 2, "is not being rebuilt"),
        (("projections", "show", "nothing"), 3, "no projection"),
        (("projections", "outbox", "chronicle", "--status", "dead"), 2, "is not one of"),
        (("projections", "rollback", "chronicle", "--reason", "r"), 2, "no earlier generation"),
        (("chronicle", "show", "x"), 2, "is not a UUID"),
        (("chronicle", "show", "0" * 8 + "-0000-0000-0000-" + "0" * 12), 3, "there is no event"),
        (("projection", "new", "No-Name"), 2, "is not 1 to 40 of a-z"),
    ],
)
def test_bad_input_is_a_clear_error(books, args, code, said):
    result = books(*args)
    assert (result.exit_code, said in result.stderr) == (code, True), result.output


def test_through_an_owner_the_read_models_are_read_from_its_files(books, here):
    books("rebuild", "chronicle")
    alone = books("chronicle", "list", "--json").stdout
    with owner_of(here / "data"):
        assert invoke("chronicle", "list", "--json").stdout == alone
        [view] = answer(invoke("projections", "list", "--json"))
        assert view["generation"] == 2


def test_a_rebuild_through_a_daemon_is_carried_out_by_it(books, here):
    """In every way that there is; readers see all entries when the command returns."""
    daemon = Daemon(here)
    try:
        aside = answer(books("rebuild", "chronicle", "--by", "ops", "--reason", "try", "--json"))
        assert (aside["phase"], aside["mode"], aside["rows"]) == ("done", "generation", 5)
        assert (aside["by"], aside["why"]) == ("ops", "try")
        assert len(answer(books("chronicle", "list", "--json"))["entries"]) == 5
        in_place = answer(books("rebuild", "chronicle", "--truncate", "--json"))
        assert (in_place["phase"], in_place["rows"]) == ("done", 5)
        assert in_place["hash"] == aside["hash"]
        emitted = books("rebuild", "chronicle", "--truncate", "--emit-outbox")
        assert "5 events of chronicle emitted" in emitted.stdout, emitted.output
        stored = answer(books("rebuild", "chronicle", "--detach", "--json"))
        until(lambda: rebuilt(books, stored["id"]), "the daemon has carried it out")
        assert len(answer(books("chronicle", "search", "红楼", "--json"))["entries"]) == 1
    finally:
        assert daemon.stop() == 0


def rebuilt(books, rebuild):
    [view] = answer(books("projections", "list", "--json"))
    return view.get("rebuild") is None and view["last_rebuild"]["id"] == rebuild


@pytest.mark.parametrize("options", [(), ("--yaml",)])
def test_a_new_projection_works_with_its_test_and_overwrites_nothing(hold, here, options):
    made = hold("projection", "new", "titles", *options)
    assert made.exit_code == 0, made.output
    again = hold("projection", "new", "titles", *options)
    assert (again.exit_code, "nothing was written" in again.stderr) == (2, True)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout
    app = () if options else ("--app", "titles_projection.py")
    assert "titles" in hold("projections", "list", *app).stdout


def test_the_line_of_progress_has_rate_and_time_left():
    rebuild = Rebuild(
        id="rb-1",
        mode=RebuildMode.TRUNCATE,
        generation=1,
        by="ops",
        started_at_us=0,
        phase=RebuildPhase.FILLING,
        total=5_000,
        filled=1_200,
    )
    assert progress_line(rebuild, 800.0) == "filling 1,200 of 5,000 (24%), 800/s, 4.8s left"
