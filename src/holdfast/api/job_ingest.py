"""``/jobs:ingest``: jobs as NDJSON, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.contract import Admission
from holdfast.model.errors import InvalidInput
from holdfast.model.permissions import Permission
from holdfast.operations.inputs import JobInput

from .call import ApiCall, Route, decoded, invalid
from .ingest import INGEST_PARAMETERS, NDJSON, IngestTarget, StoredLine, answer_ingest
from .job_bodies import JOB_EXAMPLE, NewJobBody
from .jobs import ON_DUPLICATE, of_one_job
from .streaming import StreamedAnswer


async def ingest_jobs(call: ApiCall) -> StreamedAnswer:
    """Create a job for each line; a line may depend on jobs of lines before it."""
    on_duplicate = ON_DUPLICATE.get(call.value("on_duplicate", "refuse"))
    if on_duplicate is None:
        raise invalid("on_duplicate", "it is refuse or skip")

    def parse(text: bytes) -> JobInput:
        return decoded(text, NewJobBody).input(call.tenant)

    def check(job: JobInput) -> None:
        try:
            call.operations.check_input(job)
        except InvalidInput as error:
            raise of_one_job(error) from None

    async def store(jobs: Sequence[JobInput]) -> list[StoredLine]:
        try:
            receipts = await call.operations.enqueue(jobs, on_duplicate)
        except InvalidInput as error:
            raise (of_one_job(error) if len(jobs) == 1 else error) from None
        return [StoredLine(one.id, one.admission is not Admission.CREATED) for one in receipts]

    return await answer_ingest(call, IngestTarget(parse, check, store))


ROUTES = (
    Route(
        operation_id="ingestJobs",
        method="POST",
        path="/jobs:ingest",
        handle=ingest_jobs,
        permission=Permission.JOB_CREATE,
        summary="Create jobs from NDJSON, committed as they come",
        parameters=(*INGEST_PARAMETERS, "on_duplicate"),
        body=NewJobBody,
        example=JOB_EXAMPLE,
        streams_body=True,
        takes_key=False,
        media=(NDJSON,),
        envelope=False,
    ),
)
