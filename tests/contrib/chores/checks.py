"""Tests of the backend, which `test_django` runs by `manage.py test`."""

from datetime import timedelta

from django.db import transaction
from django.test import TestCase
from django.utils import timezone
from orders.models import Order

from holdfast.contrib.django import queue
from holdfast.contrib.django.backend import exceptions, signals
from holdfast.testing import assert_added, run_due
from tests.contrib.chores.tasks import add, count, describe, fail


class BackendTest(TestCase):
    """From `enqueue` to the result."""

    def test_a_task_is_enqueued_run_and_has_a_result(self) -> None:
        """Its result is first READY; functions, coroutines, and one that takes the context."""
        Order.objects.create(email="a@example.com", item="tea")
        results = [add.enqueue(1, second=2), count.enqueue(), describe.enqueue()]
        assert [result.status for result in results] == ["READY"] * 3
        assert add.get_result(results[0].id).kwargs == {"second": 2}

        runs = run_due(queue)

        assert [run.error for run in runs] == [""] * 3
        assert runs[0].task == "tests.contrib.chores.tasks.describe"
        for result in results:
            result.refresh()
        assert [result.status for result in results] == ["SUCCESSFUL"] * 3
        assert [result.return_value for result in results] == [3, 1, [results[2].id, 1, 50]]
        assert results[0].attempts == 1
        assert results[0].enqueued_at <= results[0].started_at <= results[0].finished_at

    def test_a_task_that_fails_has_its_errors(self) -> None:
        """Again only if the backend says so, and then with all of them."""
        result = fail.enqueue("here")
        run_due(queue)
        result.refresh()
        assert result.status == "READY"
        queue.update(int(result.id), run_at=timezone.now())
        run_due(queue)

        result.refresh()
        assert (result.status, result.attempts) == ("FAILED", 2)
        assert [error.exception_class for error in result.errors] == [LookupError] * 2
        assert "chores/tasks.py" in result.errors[0].traceback
        with self.assertRaisesMessage(ValueError, "Task failed"):
            assert result.return_value
        once = fail.using(backend="default").enqueue("once")
        run_due(queue)
        assert fail.get_result(once.id).status == "FAILED"

    def test_when_and_where_a_task_runs(self) -> None:
        """Later, first, or in a queue, which is a domain."""
        later = timezone.now() + timedelta(hours=1)
        add.using(run_after=later).enqueue(1)
        result = add.using(queue_name="mail", priority=-100).enqueue(2)

        assert [run.result for run in run_due(queue)] == [3]
        found = add.get_result(result.id)
        assert (found.task.queue_name, found.task.priority) == ("mail", -100)
        assert queue.get(int(result.id)).domain == b"mail"
        waiting = assert_added(queue, "tests.contrib.chores.tasks.add", args=[1])
        assert queue.get(waiting.id).run_at == int(later.timestamp() * 1000)

    def test_what_was_rolled_back_was_not_enqueued(self) -> None:
        """Then there is no such result, as there is none of a job of another kind."""
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            result = add.enqueue(1)
            raise ZeroDivisionError
        other = queue.add("send_receipt", {"order_id": 1})

        for result_id in (result.id, str(other.id), "x"):
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                add.get_result(result_id)
        with self.assertRaises(exceptions.TaskResultMismatch):
            count.get_result(add.enqueue(1).id)
        with self.assertRaises(TypeError):
            add.enqueue(object())

    def test_signals_are_sent(self) -> None:
        """Where a task is enqueued, begins, and has ended."""
        heard: list[tuple[str, str]] = []

        def hear(name: str) -> None:
            def receive(task_result, **_: object) -> None:
                heard.append((name, str(task_result.status)))

            signal = getattr(signals, name)
            signal.connect(receive, weak=False)
            self.addCleanup(signal.disconnect, receive)

        for name in ("task_enqueued", "task_started", "task_finished"):
            hear(name)
        add.enqueue(1)
        count.enqueue()
        run_due(queue)

        each = [("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]
        assert heard == [("task_enqueued", "READY")] * 2 + each * 2
