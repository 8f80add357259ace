"""The queue in Django's tests. `test_django` runs these by `manage.py test` of the example."""

import re
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from orders.models import Order

import holdfast
from holdfast.contrib.django import queue
from holdfast.testing import added, in_memory, run_due

FORM = "application/x-www-form-urlencoded"


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
def pack(item: str, password: str = "") -> None:
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

    def test_memory_follows_transactions(self) -> None:
        """Though the transaction of the test is never committed."""
        check_memory()


def check_memory() -> None:
    """What `atomic` rolls back is not there, and the rest is when the outermost one ends."""
    with in_memory(queue) as clock:
        with suppress(ZeroDivisionError), transaction.atomic():
            pack.add("lost")
            raise ZeroDivisionError
        with transaction.atomic():
            pack.using(delay="1h").add("kept")
            with suppress(ZeroDivisionError), transaction.atomic():
                pack.add("lost")
                raise ZeroDivisionError
            with transaction.atomic():
                pack.add("too")
            assert added(queue) == []
        pack.add("outside")
        assert [job.data["item"] for job in added(queue)] == ["kept", "too", "outside"]
        assert [run.error for run in run_due(queue)] == ["", ""]
        clock.advance("1h")

        # And those of a handler.
        buy.using(attempts=1).add("nothing")
        assert [run.error for run in run_due(queue)] == ["", "LookupError: nothing"]
        assert len(added(queue, ship)) == 0


class DashboardTest(TestCase):
    """At /jobs/, for those that Django knows."""

    def enter(self, **rights: Any) -> User:
        """Sign in as a user."""
        user = User.objects.create_user("ada", **rights)
        self.client.force_login(user)
        return user

    def pause(self, page: str) -> int:
        """Send the form that pauses a task, with the token of a page; returns the status."""
        (token, *_) = (
            re.findall(r'name="csrf"[^>]*value="(\w+)"', page)
            or re.findall(r'value="(\w{64})"', page)
            or [""]
        )
        form = {"csrf": token, "task": "pack", "on": "yes"}
        return int(self.client.post("/jobs/tasks/pause", urlencode(form), content_type=FORM).status_code)

    def test_strangers_are_sent_to_the_login(self) -> None:
        """And users that are no staff get no page."""
        reply = self.client.get("/jobs/tasks?tenant=a")
        self.assertRedirects(reply, "/admin/login/?next=/jobs/tasks%3Ftenant%3Da")
        self.enter()
        assert self.client.get("/jobs/").status_code == 403

    def test_staff_reads(self) -> None:
        """All pages, but no secrets; and changes nothing."""
        job = pack.add("tea", password="hunter2")
        self.enter(is_staff=True)

        page = self.client.get(f"/jobs/jobs/{job.id}")
        assert page.status_code == 200
        assert page["content-type"] == "text/html; charset=utf-8"
        assert "tea" in page.text
        assert "hunter2" not in page.text
        assert self.client.get("/jobs/nowhere").status_code == 404
        (sheet,) = re.findall(r'href="(/jobs/static/style.css[^"]*)"', page.text)
        assert self.client.get(sheet)["content-type"].startswith("text/css")
        assert "EventSource" not in page.text
        assert "data-live" not in page.text
        assert self.pause(page.text) == 403
        assert len(run_due(queue)) == 1

    def test_a_permission_lets_staff_change_jobs(self) -> None:
        """With the token of a form of its own."""
        pack.add("tea")
        user = self.enter(is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="manage_jobs"))

        page = self.client.get("/jobs/tasks").text
        assert self.pause("") == 403
        assert self.pause(page) == 303
        assert run_due(queue) == []
        assert "Resume" in self.client.get("/jobs/tasks").text


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

    def test_memory_follows_transactions(self) -> None:
        """As in a `TestCase`."""
        check_memory()

    def test_the_next_test_finds_none(self) -> None:
        """Nor the first one, after this."""
        assert names() == []
        pack.add("tea")
