"""Handlers that the store keeps: their runs have spans, and the jobs that they print continue the trace."""

from contextlib import closing

import holdfast
from holdfast.core import commands as c
from holdfast.queue.queue import ClaimedJob
from holdfast.work.executor.stored_handlers import StoredHandlers
from holdfast.work.runners.isolation import find_isolation
from holdfast.work.runners.runner import HandlerRunner
from holdfast.work.runners.settings import RunnerSettings
from tests.traces.test_traces import id_of, parent_of, trace_of


def test_a_stored_handler_runs_in_a_span_that_its_new_jobs_continue(spans, tracer):
    runner = HandlerRunner(find_isolation(RunnerSettings()))
    with holdfast.connect("memory://") as queue, closing(runner):
        queue.handlers.set("task", "echo 'J: next|1'", lang="shell")
        with tracer.start_as_current_span("request"):
            queue.add("task", 5)
        claimed = queue.connection.ask(c.Claim(handled=True, lease_ms=60_000))
        answers: list[c.Answer | None] = []

        StoredHandlers(queue, 0, runner).run(
            claimed,
            lambda _key: ClaimedJob(queue, claimed[0], 60_000, renew=False),
            lambda _key, answer, _ran_s: answers.append(answer),
        )

        (new,) = queue.jobs(task="next")
        add, run = spans.one("add task"), spans.one("run task")
        assert (parent_of(run), trace_of(run)) == (id_of(add), trace_of(add))
        assert new.traceparent[3:52] == f"{trace_of(run)}-{id_of(run)}"
        assert run.attributes["holdfast.outcome"] == "finished"
        assert len(answers) == 1
