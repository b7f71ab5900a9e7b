"""The job of an event: made without the checks of a request, and the same."""

from holdfast.model.event import NewEvent, accept_event
from holdfast.model.job import admit
from holdfast.model.subscription import Subscription, admitted_job, job_of

EVENT = accept_event(
    NewEvent(
        event_type="book.renamed",
        entity_type="book",
        entity_id="7",
        actor_id="anna",
        tenant="library",
        scope="library:42/book:7",
    ),
    "01a1ee57-4199-7bf4-8da8-a7b95fa309e2",
    now_us=5,
    position=9,
    fanout_version=2,
)
SUBSCRIPTION = Subscription("titles", "titles.1", "projection.titles", max_attempts=4)


def test_an_admitted_job_is_the_one_that_a_request_for_it_gives():
    new = job_of(EVENT, SUBSCRIPTION)
    expected = admit(new, str(new.id), 6, 11, created_at_us=8)
    assert admitted_job(EVENT, SUBSCRIPTION, 6, 11, 8) == expected


def test_control_a_job_at_another_place_of_its_key_is_another_one():
    assert admitted_job(EVENT, SUBSCRIPTION, 6, 11, 8) != admitted_job(
        EVENT, SUBSCRIPTION, 6, 12, 8
    )
