"""``/jobs``: create, list, read, edit and cancel jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from msgspec.structs import replace

from holdfast.engines.contract import Admission, OnDuplicate
from holdfast.model.actions import CancelJobs
from holdfast.model.errors import InvalidInput, StaleVersion
from holdfast.model.job import MICROSECONDS, Edit, State
from holdfast.model.permissions import Permission
from holdfast.model.search import Filter, Order, check_order
from holdfast.operations.filter_bounds import missing_bound
from holdfast.operations.views import JobView

from .call import Answer, ApiCall, Route, invalid
from .conditions import expected_version, shown_unless_known, stale, tag_of
from .exports import EXPORT_MEDIA
from .job_bodies import (
    HIDDEN,
    JOB_EXAMPLE,
    MAX_BATCH,
    JobBatchBody,
    JobEditBody,
    JobReceipt,
    NewJobBody,
    shown,
)
from .job_filters import FILTER_PARAMETERS, filter_of_call
from .lists import LIST_PARAMETERS, ListPage, ListSource, PageRequest, answer_list
from .problems import FieldError, RequestRefused
from .streaming import StreamedAnswer

PAGE_PARAMETERS = (*LIST_PARAMETERS, "count", "order", "include")
ON_DUPLICATE: dict[str, OnDuplicate] = {"refuse": "refuse", "skip": "skip"}


def location_of(call: ApiCall, job_id: str) -> str:
    """Return the path of a job; every character that a path could take for its own is escaped."""
    name = quote(job_id, safe="").replace(".", "%2E")
    return f"/v2/tenants/{quote(call.tenant, safe='')}/jobs/{name}"


async def with_payload(call: ApiCall) -> bool:
    """Return whether payloads are asked for; they need a permission of their own."""
    asked = call.values("include")
    if any(one != "payload" for one in asked):
        raise invalid("include", "it can be payload")
    if asked:
        await call.require(Permission.PAYLOAD_READ)
    return bool(asked)


async def create_job(call: ApiCall) -> Answer:
    """Create one job; one with the same ``unique`` key is the answer if it is unfinished."""
    wanted = call.body(NewJobBody).input(call.tenant)
    if call.keyed is not None:
        wanted = replace(wanted, id=wanted.id or call.keyed.job_ids(1)[0])
        call.keyed.foresee(_created(call, wanted.id or "", existing=False))
    try:
        (receipt,) = await call.operations.enqueue([wanted])
    except InvalidInput as error:
        raise of_one_job(error) from None
    existing = receipt.admission is not Admission.CREATED
    return _created(call, receipt.id, existing=existing)


def _created(call: ApiCall, job_id: str, *, existing: bool) -> Answer:
    return Answer(
        data=JobReceipt(job_id, call.tenant, existing),
        status=200 if existing else 201,
        meta={"existing": existing},
        headers={"location": location_of(call, job_id)},
    )


async def create_jobs(call: ApiCall) -> Answer:
    """Create up to a thousand jobs in one commit: all, or none."""
    batch = call.body(JobBatchBody)
    if len(batch.jobs) > MAX_BATCH:
        raise RequestRefused("too-large", f"at most {MAX_BATCH:,} jobs in one batch")
    if batch.on_duplicate not in ON_DUPLICATE:
        raise invalid("on_duplicate", "it is refuse or skip")
    inputs = [one.input(call.tenant) for one in batch.jobs]
    if call.keyed is not None:
        if batch.on_duplicate == "skip" or any(one.unique is not None for one in inputs):
            problem = "not with `unique` or `on_duplicate: skip`: a repeat could not be told"
            raise invalid("Idempotency-Key", problem)
        ids = call.keyed.job_ids(len(inputs))
        inputs = [replace(one, id=one.id or new) for one, new in zip(inputs, ids, strict=True)]
        call.keyed.foresee(created_before(call))
    receipts = await call.operations.enqueue(inputs, ON_DUPLICATE[batch.on_duplicate])
    return Answer(
        data=[
            JobReceipt(one.id, call.tenant, one.admission is not Admission.CREATED)
            for one in receipts
        ]
    )


def created_before(call: ApiCall) -> Answer:
    """Return the answer of a batch with an Idempotency-Key: its ids come from the key."""
    jobs = call.body(JobBatchBody).jobs
    ids = call.keyed.job_ids(len(jobs)) if call.keyed is not None else []
    named = [one.id or new for one, new in zip(jobs, ids, strict=True)]
    return Answer(data=[JobReceipt(one, call.tenant, existing=False) for one in named])


async def list_jobs(call: ApiCall) -> Answer | StreamedAnswer:
    """List the jobs that a filter finds, a page at a time."""
    return await page_of(call, await filter_of_call(call))


async def page_of(call: ApiCall, wanted: Filter) -> Answer | StreamedAnswer:
    """Return the page of these jobs that the query asks for."""
    payload = await with_payload(call)
    order = check_order(call.value("order", Order.NEWEST.value))
    if missing := missing_bound(wanted):
        raise RequestRefused("filter-too-broad", missing)

    async def fetch(asked: PageRequest) -> ListPage:
        pages = call.operations.page_before if asked.backwards else call.operations.page
        page = await pages(wanted, cursor=asked.cursor, limit=asked.limit, order=order)
        items = [shown(job, payload=payload) for job in page.jobs]
        return ListPage(items, page.cursor, page.previous)

    source = ListSource(
        name="jobs",
        kind=JobView,
        fetch=fetch,
        count=lambda cap: call.operations.count(order.of_listed(wanted), cap=cap),
        windowed=wanted.created_from_us is not None or wanted.finished_from_us is not None,
        hidden=frozenset() if payload else HIDDEN,
    )
    return await answer_list(call, source)


async def show_job(call: ApiCall) -> Answer:
    """Return one job, or 304 if it is as the caller has it."""
    payload = await with_payload(call)
    view = JobView.of(await call.job())
    return shown_unless_known(call, shown(view, payload=payload), view.version)


async def edit_job(call: ApiCall) -> Answer:
    """Change a job that is not running, if it is at the version that the caller has seen."""
    changes = call.body(JobEditBody)
    who = call.author(changes.why)
    version = expected_version(call, changes.version)
    await call.job()
    edit = Edit(
        payload=changes.payload,
        priority=changes.priority,
        max_attempts=changes.max_attempts,
        run_at_us=None if changes.run_at is None else _microseconds(changes.run_at),
    )
    try:
        view = await call.operations.edit(call.path["id"], call.tenant, edit, who, version)
    except StaleVersion as error:
        raise stale(call, error) from None
    fields = shown(view, payload=False)
    return Answer(data=fields, headers={"etag": tag_of(view.version, fields)})


async def cancel_job(call: ApiCall) -> Answer:
    """Cancel a job; one in flight is asked to stop (202)."""
    who = call.author(call.value("why"))
    view = await call.operations.act(CancelJobs(), call.path["id"], call.tenant, who)
    running = view.status == State.IN_FLIGHT.value
    return Answer(data=shown(view, payload=False), status=202 if running else 200)


def _microseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * MICROSECONDS)


def of_one_job(error: InvalidInput) -> RequestRefused | InvalidInput:
    """Return the error of the only job of a call, without its place in a batch."""
    place, colon, field = error.field.partition(": ")
    if not colon or place != "job 1":
        return error
    pointers = [FieldError(f"/{field}", error.code, error.problem)]
    return RequestRefused("invalid-input", f"{field}: {error.problem}", fields=pointers)


ROUTES = (
    Route(
        operation_id="createJob",
        method="POST",
        path="/jobs",
        handle=create_job,
        permission=Permission.JOB_CREATE,
        summary="Create a job",
        body=NewJobBody,
        example=JOB_EXAMPLE,
        answers=JobReceipt,
        statuses=(201, 200),
    ),
    Route(
        operation_id="createJobs",
        method="POST",
        path="/jobs:batch",
        handle=create_jobs,
        permission=Permission.JOB_CREATE,
        summary="Create jobs, all or none",
        body=JobBatchBody,
        example={"jobs": [JOB_EXAMPLE], "on_duplicate": "skip"},
        answers=list[JobReceipt],
        repeat=created_before,
    ),
    Route(
        operation_id="listJobs",
        method="GET",
        path="/jobs",
        handle=list_jobs,
        permission=Permission.JOB_READ,
        summary="List jobs by any filter",
        parameters=(*FILTER_PARAMETERS, *PAGE_PARAMETERS),
        answers=list[JobView],
        media=EXPORT_MEDIA,
    ),
    Route(
        operation_id="lookUpJob",
        method="GET",
        path="/jobs:lookup",
        handle=show_job,
        permission=Permission.JOB_READ,
        summary="Return a job by an id that a path cannot carry",
        parameters=("id", "include"),
        answers=JobView,
        statuses=(200, 304),
    ),
    Route(
        operation_id="getJob",
        method="GET",
        path="/jobs/{id}",
        handle=show_job,
        permission=Permission.JOB_READ,
        summary="Return a job",
        parameters=("include",),
        answers=JobView,
        statuses=(200, 304),
    ),
    Route(
        operation_id="editJob",
        method="PATCH",
        path="/jobs/{id}",
        handle=edit_job,
        permission=Permission.JOB_EDIT,
        summary="Change a job that is not running",
        body=JobEditBody,
        example={"why": "it is urgent", "priority": 10, "version": 1},
        answers=JobView,
    ),
    Route(
        operation_id="cancelJob",
        method="DELETE",
        path="/jobs/{id}",
        handle=cancel_job,
        permission=Permission.JOB_CANCEL,
        summary="Cancel a job",
        parameters=("why",),
        answers=JobView,
        statuses=(200, 202),
    ),
)
