"""The queue in Django's tests. `test_django` runs these by `manage.py test` of the example."""

from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from orders.models import Order

import holdfast
from holdfast.contrib.django import queue
from holdfast.testing import added, in_memory, run_due


@queue.task(attempts=3)
def buy(ctx: holdfast.Context, item: str) -> Any:
    """Save a row in a transaction, and add a job in it."""
    if ctx.attempt == 1 and item == "late":
        raise OSError("not now")
    with transaction.atomic():
        order = Order.objects.create(email="a@example.com", item=item)
        ship.add(order.pk)
        if item == "nothing":
            raise LookupError(item)
    ctx.log(f"bought {item}")
    return order.pk


@queue.task
async def ship(order: int) -> Any:
    """A coroutine that asks by Django's models and by the queue."""
    found = await Order.objects.aget(pk=order)
    await sync_to_async(pack.add)(found.item)
    return found.item


@queue.task
def pack(item: str) -> None:
    """Nothing to do."""


def names() -> list[str]:
    """The tasks of the jobs that were added."""
    return [job.task for job in added(queue)]


class InsideTest(TestCase):
    """In a transaction of the test, which is in one of the class."""

    @classmethod
    def setUpTestData(cls) -> None:
        """What each test begins with."""
        cls.first = pack.using(unique="first").add("tea")

    def test_jobs_run_with_rows_of_the_test(self) -> None:
        """Functions and coroutines; each sees what is not committed."""
        job = buy.add("tea")

        runs = run_due(queue)

        assert [(run.task, run.error) for run in runs] == [
            (name, "") for name in ("pack", "buy", "ship", "pack")
        ]
        order = Order.objects.get()
        assert job.result(wait=5) == order.pk
        assert queue.result(runs[2].job) == "tea"
        assert [line.text for line in queue.log(job)] == ["bought tea"]

    def test_what_a_handler_rolls_back_is_not_there(self) -> None:
        """Neither its row nor its job; the job itself failed."""
        job = buy.using(attempts=1).add("nothing")

        assert [run.error for run in run_due(queue)] == ["", "LookupError: nothing"]
        assert not Order.objects.exists()
        assert "ship" not in names()
        with self.assertRaises(holdfast.JobFailed):
            job.result()

    def test_a_key_is_free_after_a_roll_back(self) -> None:
        """Ids are new, and what was published is published again."""
        for _ in range(2):
            point = transaction.savepoint()
            job = buy.using(unique="one").add("late")
            assert [run.error for run in run_due(queue, tasks=[buy])] == ["OSError: not now"]
            assert queue.get(job).attempts == 1
            transaction.savepoint_rollback(point)
        assert names() == ["pack"]
        assert pack.using(unique="first").add("tea") == self.first

    def test_waits_end_and_other_stores_stay_possible(self) -> None:
        """Nobody else runs a job of this transaction."""
        with self.assertRaises(holdfast.Timeout):
            self.first.result(wait=0.1)
        with in_memory(queue) as clock:
            pack.using(delay="1h").add("tea")
            clock.advance("1h")
            assert len(run_due(queue)) == 1
        assert len(run_due(queue)) == 1


class CommittedTest(TransactionTestCase):
    """Without a transaction of the test."""

    def test_jobs_are_committed_and_rolled_back(self) -> None:
        """As in production."""
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            pack.add("lost")
            raise ZeroDivisionError
        with transaction.atomic():
            buy.add("tea")
        assert [run.task for run in run_due(queue)] == ["buy", "ship", "pack"]

    def test_the_next_test_finds_none(self) -> None:
        """Nor the first one, after this."""
        assert names() == []
        pack.add("tea")
