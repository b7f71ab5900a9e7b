"""The final check of an end-to-end test: returns a list of problems."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.model.job import State

RECOVERY_SECONDS = 1.0
RESPAWN_SECONDS = 3.0
"""Longer: the child process has to start and import the application."""
LOCKED = ("locked", "DirectoryInUse", "is owned by process", "listens on")


class Story(msgspec.Struct, kw_only=True):
    """What happened, from several independent records."""

    acknowledged: Collection[str]
    """Jobs whose enqueue was acknowledged."""
    states: Mapping[str, State]
    """Every job in the store at the end, including finished ones."""
    records: Sequence[tuple[str, str]]
    """Type and job of every record in the log."""
    begun: Counter[str]
    ended: Counter[str]
    kills: int
    slots: int
    recoveries: Sequence[float]
    """For each interrupted job: seconds from the daemon's ready line to its next run, corrected for
    the load of the machine."""
    respawns: Sequence[float]
    """The same for jobs whose next run was in a child process."""
    figures: tuple[Sequence[float], Sequence[float]] = ((), ())
    """Both without the correction."""
    complaints: Sequence[str] = ()
    """Errors that producers and commands received."""


def problems(story: Story) -> list[str]:
    """Return the problems, one sentence each."""
    found: list[str] = []

    def report(what: str, which: Collection[object]) -> None:
        if which:
            found.append(f"{len(which)} {what}: {sorted(map(str, which))[:5]}")

    acks = Counter(job for kind, job in story.records if kind == "ACK")
    states = story.states
    report("acknowledged jobs lost", [job for job in story.acknowledged if job not in states])
    report(
        "jobs not completed",
        [f"{job} is {state.value}" for job, state in states.items() if state != State.COMPLETED],
    )
    report("jobs dead", [job for kind, job in story.records if kind == "DEAD"])
    report("jobs recorded twice", [job for job, count in acks.items() if count > 1])
    report("completions without a record", [job for job in states if not acks[job]])
    report("completions without an execution", [job for job in states if not story.ended[job]])
    executions = story.begun.total()
    most = len(states) + story.kills * story.slots
    if executions > most:
        found.append(f"{executions} executions, but at most {most} are expected")
    report(
        "interrupted jobs that ran again too late",
        [f"{seconds:.2f} s" for seconds in story.recoveries if seconds > RECOVERY_SECONDS],
    )
    report(
        "interrupted jobs whose child came too late",
        [f"{seconds:.2f} s" for seconds in story.respawns if seconds > RESPAWN_SECONDS],
    )
    report("complaints about a lock", [text for text in story.complaints if _locked(text)])
    return found


def _locked(text: str) -> bool:
    return any(word in text for word in LOCKED)
