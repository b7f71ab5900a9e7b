"""What must be true when everything is over, as a list of what is not."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from holdfast.model.job import State

RECOVERY_SECONDS = 1.0
RESPAWN_SECONDS = 3.0
"""A job that runs in a child process waits for it to start and import the application."""
LOCKED = ("locked", "DirectoryInUse", "is owned by process", "listens on")


class Story(msgspec.Struct, kw_only=True):
    """What happened, as several books tell it."""

    acknowledged: Collection[str]
    """Jobs that somebody was told are enqueued."""
    states: Mapping[str, State]
    """Every job in the store in the end, finished ones included."""
    records: Sequence[tuple[str, str]]
    """Type and job of every record in the log."""
    begun: Counter[str]
    ended: Counter[str]
    kills: int
    slots: int
    recoveries: Sequence[float]
    """For each job that a kill interrupted: seconds from the daemon's word to its next run, by
    the clock of a machine that has nothing else to do."""
    respawns: Sequence[float]
    """The same for those whose next run was in a child process."""
    figures: tuple[Sequence[float], Sequence[float]] = ((), ())
    """Both without allowance for a busy machine."""
    complaints: Sequence[str] = ()
    """What producers and commands were told that was not a plain yes."""


def problems(story: Story) -> list[str]:
    """Return what is wrong, a sentence each."""
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
        found.append(f"{executions} executions, and at most {most} can be explained")
    report(
        "interrupted jobs that ran again too late",
        [f"{seconds:.2f} s" for seconds in story.recoveries if seconds > RECOVERY_SECONDS],
    )
    report(
        "interrupted jobs whose child came too late",
        [f"{seconds:.2f} s" for seconds in story.respawns if seconds > RESPAWN_SECONDS],
    )
    report("complaints about a lock", [said for said in story.complaints if _locked(said)])
    return found


def _locked(said: str) -> bool:
    return any(word in said for word in LOCKED)
