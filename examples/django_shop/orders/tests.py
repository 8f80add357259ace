"""Tests of the shop: `python manage.py test`. Jobs are in the test database, and gone with each test."""

from django.core import mail
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from holdfast.contrib.django import queue
from holdfast.testing import added, assert_added, run_due
from orders.models import Order
from orders.tasks import send_receipt

TEA = {"email": "ada@example.com", "item": "tea"}


class OrderTest(TestCase):
    """Each test is in a transaction, which Django rolls back."""

    def test_an_order_adds_the_job_of_its_receipt(self) -> None:
        """The request alone sends nothing."""
        reply = self.client.post("/orders/", TEA)

        self.assertEqual(reply.status_code, 201)
        assert_added(queue, send_receipt, order_id=reply.json()["order"])
        self.assertEqual(mail.outbox, [])

    def test_the_job_sends_the_receipt_once(self) -> None:
        """Also if it runs twice."""
        order = Order.objects.create(**TEA)
        send_receipt.add(order.pk)
        send_receipt.add(order.pk)

        runs = run_due(queue)

        self.assertEqual([run.result for run in runs], ["ada@example.com", "ada@example.com"])
        self.assertEqual([message.subject for message in mail.outbox], [f"Order {order.pk}"])

    def test_an_order_that_fails_leaves_no_job(self) -> None:
        """What was rolled back is not there."""
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            send_receipt.add(1)
            raise ZeroDivisionError

        self.assertEqual(added(queue), [])


class CommittedOrderTest(TransactionTestCase):
    """Each test commits; then Django empties the database, and with it the queue."""

    def test_an_order_that_was_committed_has_its_job(self) -> None:
        """From the request to the receipt."""
        self.client.post("/orders/", TEA)

        self.assertEqual([run.error for run in run_due(queue)], [""])
        self.assertEqual(len(mail.outbox), 1)

    def test_the_next_test_begins_without_jobs(self) -> None:
        """Whichever of the two comes first."""
        self.assertEqual(added(queue), [])
        send_receipt.add(1)
