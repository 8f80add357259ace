"""What workers do. Django imports `tasks.py` of each application when it starts."""

from django.core.mail import send_mail
from django.core.management import call_command
from django.utils import timezone

from holdfast.contrib.django import queue
from orders.models import Order


@queue.task(attempts=5)
def send_receipt(order_id: int) -> str:
    """Send the receipt of an order, unless an earlier run has done so."""
    order = Order.objects.get(pk=order_id)
    if order.receipt_sent_at is None:
        send_mail(f"Order {order.pk}", f"Thank you for ordering {order.item}.", None, [order.email])
        order.receipt_sent_at = timezone.now()
        order.save(update_fields=["receipt_sent_at"])
    return order.email


@queue.task(cron="30 3 * * *", tz="Europe/Berlin")
def clear_sessions() -> None:
    """Remove the sessions that have expired, each night."""
    call_command("clearsessions")
