"""Sentry, the real SDK with a transport of the test: what is reported of failed runs, and what is not."""

import asyncio
import json
import logging

import pytest
import sentry_sdk
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

import holdfast
from holdfast import Failed, Retry, testing
from holdfast.contrib.sentry import report_failures
from tests.cli.shell import Shell

SECRET = "4111-1111"
log = logging.getLogger("app")


class ListTransport(Transport):
    """Keeps events, instead of sending them."""

    events: list[dict] = []

    def capture_envelope(self, envelope):
        """Keep the event."""
        self.events.append(envelope.get_event())


@pytest.fixture
def events():
    """What the SDK has sent."""
    ListTransport.events.clear()
    sentry_sdk.init(
        dsn="https://key@localhost/1",
        transport=ListTransport,
        default_integrations=False,
        integrations=[LoggingIntegration(), DedupeIntegration()],
    )
    yield ListTransport.events
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def queue():
    """A queue in memory that reports to it, with tasks that fail in each way."""
    runs = []
    with testing.queue(tenant="acme") as queue:
        report_failures(queue)

        @queue.task(attempts=3)
        def flaky(card: str, succeeds: bool) -> None:
            log.warning("charging")
            if not (succeeds and holdfast.current_job_id()):
                raise OSError("the bank is away")

        @queue.task(attempts=3)
        def hopeless(card: str) -> None:
            raise Failed("the card is not valid")

        @queue.task(attempts=3, fail_on=(ValueError,))
        def fatal(card: str) -> None:
            raise ValueError("no number")

        @queue.task
        def waits() -> None:
            runs.append("waits")
            if len(runs) < 3:
                raise Retry("1s", counts=False)

        @queue.task
        def well() -> str:
            return "well"

        yield queue


def test_a_job_that_has_failed_is_reported_once(queue, events):
    """Not the runs before its last, nor the line of the log; with tags, and breadcrumbs of that run alone."""
    queue.add("well")
    job = queue.add("flaky", {"card": SECRET, "succeeds": False})

    assert len(testing.run_due(queue, advance="1h")) == 4

    (event,) = events
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("OSError", "the bank is away")
    assert error["mechanism"] == {"type": "holdfast", "handled": False}
    assert [frame["function"] for frame in error["stacktrace"]["frames"]] == ["flaky"]
    assert event["tags"] == {"job_id": str(job.id), "task": "flaky", "attempt": "3", "tenant": "acme"}
    assert (event["level"], event["transaction"]) == ("error", "flaky")
    assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == ["charging"]
    assert SECRET not in json.dumps(event)


def test_what_ends_well_or_waits_is_not_reported(queue, events):
    """Nor what is cancelled."""
    cancelled = queue.add("flaky", {"card": SECRET, "succeeds": False})
    job = queue.next()
    cancelled.cancel()
    assert job.run().state == "CANCELLED"
    queue.add("well")
    queue.add("waits")
    queue.add("flaky", {"card": SECRET, "succeeds": True})

    runs = testing.run_due(queue, advance="1h")

    assert [run.task for run in runs if run.state == "FINISHED"] == ["well", "flaky", "waits"]
    assert events == []


@pytest.mark.parametrize("task", ["hopeless", "fatal"])
def test_a_failure_without_another_attempt_is_reported_at_once(queue, events, task):
    """By `Failed`, or an exception of `fail_on`."""
    queue.add(task, {"card": SECRET})

    testing.run_due(queue)

    assert [event["tags"]["attempt"] for event in events] == ["1"]
    assert SECRET not in json.dumps(events)


def test_data_that_does_not_fit_and_results_that_cannot_be_stored_are_reported_once(queue, events):
    """The one before the handler, the other after it: that is in the log alone, which gets the tags."""

    @queue.task
    def unfit() -> object:
        return object()

    queue.add_many([("hopeless", {"card": SECRET})])
    for job in queue.claim():
        job.update({"cards": [SECRET]})
        job.release()
    unfit.add()
    testing.run_due(queue)

    assert [(event["tags"]["task"], event["tags"]["attempt"]) for event in events] == [
        ("hopeless", "1"),
        ("unfit", "1"),
    ]
    assert SECRET not in json.dumps(events)


def test_retries_and_data_are_reported_if_asked(events):
    """Each run that will be repeated as a warning, and what the handler had."""
    with testing.queue() as queue:
        report_failures(queue, retries=True, data=True)

        @queue.task(attempts=2)
        def charge(card: str) -> None:
            raise OSError("the bank is away")

        charge.add(SECRET)
        testing.run_due(queue, advance="1h")

    assert [event["level"] for event in events] == ["warning", "error"]
    for event in events:
        assert event["contexts"]["job"]["data"] == {"card": SECRET}
        assert event["exception"]["values"][0]["stacktrace"]["frames"][-1]["vars"]["card"] == f"'{SECRET}'"


def test_coroutines_that_run_at_once_do_not_share_tags(tmp_path, events):
    """Each has a scope of its own."""
    queue = holdfast.connect_async(str(tmp_path / "jobs.db"))
    report_failures(queue)
    both = asyncio.Barrier(2)

    @queue.task(attempts=1)
    async def fail(n: int) -> None:
        sentry_sdk.set_tag("n", n)
        await both.wait()
        raise LookupError(n)

    async def main():
        async with queue:
            await fail.add_many([(1,), (2,)])
            await holdfast.work_async(queue, threads=2, until_empty=True)

    asyncio.run(main())

    assert sorted((event["tags"]["n"], event["exception"]["values"][0]["value"]) for event in events) == [
        (1, "1"),
        (2, "2"),
    ]
    assert len({event["tags"]["job_id"] for event in events}) == 2


def test_a_worker_reports_before_its_processes_end(tmp_path, monkeypatch):
    """Once, by the process that ran the handler; the supervisor knows nothing of Sentry."""
    monkeypatch.setenv("SENTRY_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("SENTRY_STORE", str(tmp_path / "jobs.db"))
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        queue.add("fail", {"word": SECRET}, attempts=2, backoff="0s")
    assert Shell(tmp_path).run("worker", "tests.contrib.sentry_app:queue", "--until-empty").code == 0

    (event,) = map(json.loads, (tmp_path / "events").read_text().splitlines())
    assert (event["tags"]["task"], event["tags"]["attempt"]) == ("fail", "2")
    assert SECRET not in json.dumps(event)


def test_what_is_no_queue_is_refused():
    """By name."""
    with pytest.raises(holdfast.BadInput, match="queue is 'str'"):
        report_failures("jobs.db")  # type: ignore[arg-type]
