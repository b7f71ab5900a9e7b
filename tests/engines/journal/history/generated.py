"""Jobs, filters and callers of every kind, for tests that hold the store against the model."""

from hypothesis import strategies as st

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.model import effects as fx
from holdfast.model.access import Caller
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.fingerprint import fingerprint
from holdfast.model.job import Job, Replays, State, Ties
from holdfast.model.payload_condition import PayloadCondition
from holdfast.model.search import HOUR_US, Filter

TENANTS = ("a", "b", "ü")
IDS = ("1", "2", "A", "a", "%", "_", "ä")
SCOPES = ("", "x", "X", "x/y", "x/y/z", "x/%", "x_y", "xy", "x/ü", "x'", "%", "x//y")
QUEUES = ("q", "Q", "r%")
TASKS = ("t", "u")
KEYS = (None, "k", "K")
RUNS = ("", "run-1", "RUN-1", "\x01", "a\0b", '\x01"a\\u0000b"')
REASONS = ("timeout", "Timeout", "\0", "\x01", "it's")
MESSAGES = (
    "",
    "Timeout after 30 s",
    "timeout AFTER 31 s",
    "100%",
    "a_b",
    "ÄRGER ärger",
    "nul \0 here",
    "one \x01 here",
    "K\u212a",  # the Kelvin sign: its small letter is an ASCII one, but not for us
    'x"y\\z\n',
)
TEXTS = (
    "timeout",
    "AFTER",
    "%",
    "_",
    "ärger",
    "ÄRGER",
    "\0",
    "\x01",
    "k",
    "nul",
    "\ud800",
    "\\z\n",
)
WORKERS = ("", "w", "own/w", "own/v", "wow/vw")
PAYLOADS = (
    b"",
    b"\x01",
    b"{}",
    b'{"a":1}',
    b'{"a":{"b":[true,"1"]}}',
    '{"a":1.0,"ü":null}'.encode(),
)
CONDITIONS = (
    PayloadCondition.of(["a"], 1),
    PayloadCondition.of(["a", "b", "0"], True, "1"),
    PayloadCondition.of(["ü"], None),
)
FINISHED = (State.COMPLETED, State.CANCELLED, State.DEAD, State.ARCHIVED)
TIMES = st.integers(0, 3).map(lambda n: n * HOUR_US // 2)


@st.composite
def failures(draw):
    return Failure(
        draw(st.sampled_from(REASONS)),
        draw(st.sampled_from(list(FailureClass))),
        draw(st.sampled_from(MESSAGES)),
        draw(st.sampled_from(("", "Traceback"))),
    )


@st.composite
def jobs(draw):
    now = draw(st.sampled_from(FINISHED))
    failure = draw(failures())
    if now is State.COMPLETED:
        failure = None
    elif now is State.CANCELLED:
        failure = draw(st.sampled_from([None, failure]))
    run = draw(st.sampled_from(RUNS))
    return Job(
        draw(st.sampled_from(IDS)),
        draw(st.sampled_from(TENANTS)),
        draw(st.sampled_from(SCOPES)),
        draw(st.sampled_from(QUEUES)),
        draw(st.sampled_from(TASKS)),
        draw(st.sampled_from(PAYLOADS)),
        0,
        3,
        draw(TIMES),
        0,
        1,
        state=now,
        attempt=draw(st.integers(0, 3)),
        worker=draw(st.sampled_from(WORKERS)),
        failure=failure,
        finished_at_us=draw(TIMES),
        ties=Ties(draw(st.sampled_from(KEYS))),
        replays=draw(st.sampled_from([None, Replays(1, 1, "ann", "why", run)])),
    )


def several(what, most=2):
    return st.lists(st.sampled_from(what), max_size=most, unique=True).map(tuple)


def perhaps(what):
    return st.none() | what


@st.composite
def filters(draw):
    """Few conditions at a time: otherwise nothing would ever match."""
    chosen = draw(st.lists(st.sampled_from(sorted(ALL_CONDITIONS)), max_size=3, unique=True))
    without = draw(st.lists(excluded(), max_size=2)) if draw(st.booleans()) else ()
    return Filter(**{name: draw(ALL_CONDITIONS[name]) for name in chosen}, without=tuple(without))


@st.composite
def excluded(draw):
    name = draw(st.sampled_from(sorted(ALL_CONDITIONS)))
    return Filter(**{name: draw(ALL_CONDITIONS[name])})


ALL_CONDITIONS = {
    "ids": several(IDS, 4),
    "tenant": perhaps(st.sampled_from(TENANTS)),
    "scope": perhaps(st.sampled_from(SCOPES)),
    "states": several(list(State), 4),
    "queues": several(QUEUES),
    "tasks": several(TASKS),
    "keys": several(KEYS[1:]),
    "error_reasons": several(REASONS, 3),
    "classes": several(list(FailureClass)),
    "fingerprint": perhaps(st.sampled_from([fingerprint(m) for m in MESSAGES] + ["none"])),
    "text": perhaps(st.sampled_from(TEXTS)),
    "attempts_from": perhaps(st.integers(0, 3)),
    "attempts_to": perhaps(st.integers(0, 4)),
    "created_from_us": perhaps(TIMES),
    "created_to_us": perhaps(TIMES),
    "finished_from_us": perhaps(TIMES),
    "finished_to_us": perhaps(TIMES),
    "replay_run": perhaps(st.sampled_from(RUNS)),
    "workers": several(WORKERS[1:]),
    "payload": several(CONDITIONS),
}


@st.composite
def callers(draw):
    return Caller(
        draw(perhaps(st.sampled_from(TENANTS))), draw(st.just(()) | several(SCOPES[1:], 3))
    )


def recorded(seq: int, job: Job) -> AppliedEffect:
    """Return the effect by which this job became what it is."""
    effect: fx.JobEffect
    if job.state is State.COMPLETED:
        effect = fx.Completed(job.finished_at_us, job.tenant, job.id, job.result)
    elif job.state is State.CANCELLED:
        effect = fx.Cancelled(job.finished_at_us, job.tenant, job.id)
    elif job.state is State.DEAD and job.failure is not None:
        effect = fx.Died(job.finished_at_us, job.tenant, job.id, job.failure, 0)
    else:
        effect = fx.Archived(job.finished_at_us, job, "ann", "why")
    return AppliedEffect(seq, effect, None, job)
