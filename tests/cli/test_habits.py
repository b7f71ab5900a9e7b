"""Old habits: what people who know other systems type, typed."""

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead, retry


async def bury(path: Path, reasons: dict[str, int]) -> None:
    engine = await JournalEngine.open(path)
    for reason, count in reasons.items():
        await engine.enqueue([NewJob(task="t", max_attempts=1) for _ in range(count)])
        taken = (await engine.claim(queues=["default"], worker="w", limit=count)).jobs
        await engine.settle([dead(job, Failure.of(reason, "no")) for job in taken])
    await engine.close()


def test_replay_as_it_was_always_typed(hold, here):
    asyncio.run(bury(here / "data", {"upstream_5xx": 150, "mapping_error": 37}))
    done = hold("replay", "--limit", "100", "--by", "ops", "--reason", "fix applied")
    assert done.exit_code == 4
    assert done.stdout.splitlines()[:2] == [
        "100 jobs pending again",
        "37 deterministic kept: add --fixed 'what'",
    ]
    back = json.loads(hold("jobs", "list", "--status", "pending", "--json").stdout)["jobs"]
    assert len(back) == 100
    for job in back:
        assert (job["replay_count"], job["last_replayed_by"]) == (1, "ops")
        assert job["last_replayed_reason"] == "fix applied"
        assert job["last_replayed_at"]
        assert not {"worker", "lease_until", "claimed_at"} & set(job)
    rest = hold("replay", "--error-reason", "upstream_5xx", "--by", "ops", "--reason", "more")
    assert (rest.exit_code, rest.stdout) == (0, "50 jobs pending again\n")
    fixed = hold("replay", "--by", "ops", "--reason", "all", "--fixed", "the mapping")
    assert (fixed.exit_code, fixed.stdout) == (0, "37 jobs pending again\n")


def test_failed_is_accepted_where_dead_is_meant(hold, here):
    asyncio.run(bury(here / "data", {"timeout": 2}))
    assert len(json.loads(hold("jobs", "list", "--status", "failed", "--json").stdout)["jobs"]) == 2
    for old, new in (
        (("failed", "list"), ("dead", "list")),
        (("failed", "groups"), ("dead", "groups")),
    ):
        assert hold(*old, "--json").stdout == hold(*new, "--json").stdout


def test_the_log_and_the_snapshot_print_as_they_did(hold, here):
    asyncio.run(everything(here / "data"))
    lines = [json.loads(line) for line in hold("journal", "dump", "--json").stdout.splitlines()]
    assert {"seq", "type", "job_id", "timestamp", "checksum"} <= set(lines[0])
    assert {"ENQUEUE", "DISPATCH", "RETRY", "DEAD"} <= {line["type"] for line in lines}
    snapshot = json.loads(hold("journal", "dump", "--snapshot").stdout)
    assert {"queue", "in_flight", "completed", "dead", "last_seq", "schema_ver"} <= set(snapshot)


async def everything(path: Path) -> None:
    engine = await JournalEngine.open(path)
    await engine.enqueue([NewJob(task="t", id="a"), NewJob(task="t", id="b")])
    taken = (await engine.claim(queues=["default"], worker="w", limit=2)).jobs
    failure = Failure.of("timeout", "no")
    await engine.settle([retry(taken[0], failure), dead(taken[1], failure)])
    await engine.compact()
    await engine.close()


def test_enqueue_and_status_as_they_were_typed(hold, here):
    (here / "jobs.json").write_text('[{"id":"1","payload":{"type":"x"}},{"id":"2","payload":{}}]')
    assert hold("enqueue", "-f", "jobs.json").stdout == "2 jobs enqueued\n"
    assert hold("status").stdout.splitlines()[0] == "pending:   2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"id": "a"}, {"id": "b"}, {"id": "a"}]', "job 3: id: 'a' is also the id of job 1 here"),
        ('{"id": "a"}\n\n{"id": "a"}\n', "job 2: id: 'a' is also the id of job 1 here"),
        ('{"id": "a", "priority": 1.5}', "priority"),
        ('{"id": "a", "max_attempts": 0}', "job 1: max_attempts"),
    ],
)
def test_a_wrong_file_of_jobs_leaves_no_store_behind(hold, here, text, said):
    refused = hold("enqueue", stdin=text)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert not (here / "data").exists()


def test_an_id_twice_in_one_file_is_skipped_if_asked_and_is_none_of_another_tenant(hold):
    text = '{"id": "a"}\n{"id": "a"}\n{"id": "a", "tenant": "other"}\n'
    assert "2 jobs enqueued, 1 skipped" in hold("enqueue", "--skip-duplicates", stdin=text).stdout
    other = '{"id": "b"}\n{"id": "b", "tenant": "other"}\n'
    assert hold("enqueue", stdin=other).stdout == "2 jobs enqueued\n"


def test_no_time_at_all_is_refused_with_what_to_give(hold):
    refused = hold("run", "--timeout", "0")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "holdfast: task_timeout_seconds: '0' is too short: give more than 0, such as 30s "
        "(flag --timeout)\n"
    )
