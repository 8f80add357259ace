"""The options of a worker's tasks hold for jobs that were added where these are not known."""

from holdfast.engine.batch.task_defaults import read_published


def test_a_job_by_name_is_stopped_at_the_limit_of_its_task(bench):
    """`bench.queue` knows no task: what holds is what the worker's decorator says."""
    stuck = bench.queue.add("stuck")
    own = bench.queue.add("stuck", attempts=1)

    bench.work()

    assert (stuck.get().state, stuck.get().attempts) == ("FAILED", 2)
    assert "limit of 1 s" in stuck.get().errors[0].error
    assert (own.get().state, own.get().attempts) == ("FAILED", 1)


def test_a_worker_publishes_what_its_tasks_say_and_no_more(bench):
    bench.work()

    found = bench.queue.connection.engine.read(read_published)
    assert found["", "poison"].max_losses == 2
    assert found["", "stuck"].timeout_ms == 1_000
    assert ("", "double") not in found
