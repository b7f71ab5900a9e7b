"""Tries dead letters against today's tasks, without running them: ``holdfast dead try``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.job import Job
from holdfast.worker.builtin_tasks import BY_TYPE, add_builtin, by_type
from holdfast.worker.registry import Hook, Registry

from .payload_checks import PayloadProblem, payload_problem


class Trial(msgspec.Struct, frozen=True):
    """How many of some dead letters today's tasks would take."""

    tried: int
    passed: int
    problems: list[PayloadProblem] = []


async def try_letters(registry: Registry, jobs: Sequence[Job], scratch: Engine) -> Trial:
    """Check jobs against today's tasks, and with the checks that tasks have of their own.

    What a check enqueues goes to ``scratch``, which is to be forgotten.
    """
    problems = []
    add_builtin(registry, registry.default_task or None)
    hooks = any(spec.check for spec in registry.tasks.values())
    registry.adopt(scratch)
    try:
        if hooks:
            await _run_all(registry.on_start)
        for job in jobs:
            problem = payload_problem(registry, job.task, job.payload)
            problem = problem or await _own_check(registry, job)
            if problem:
                problems.append(PayloadProblem(job.id, job.task, problem))
    finally:
        if hooks:
            await _run_all(registry.on_stop)
        registry.adopt(None)
    return Trial(len(jobs), len(jobs) - len(problems), problems)


async def _own_check(registry: Registry, job: Job) -> str:
    """Call the check of a task; return what it says against these arguments."""
    spec, payload = registry.tasks[job.task], job.payload
    if job.task == BY_TYPE:
        spec, payload = by_type(registry, payload)
    if spec.check is None:
        return ""
    args, kwargs = spec.signature.arguments(payload)
    try:
        answer = spec.check(*args, **kwargs)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - it is the answer
        return f"{type(error).__name__}: {error}"
    return "its check returned False" if answer is False else ""


async def _run_all(hooks: Sequence[Hook]) -> None:
    for hook in hooks:
        pending = hook()
        if inspect.isawaitable(pending):
            await pending
