"""The pages of the shop."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from orders.models import Order
from orders.tasks import send_receipt


@require_POST
def add_order(request: HttpRequest) -> JsonResponse:
    """Save an order and add the job of its receipt: both, or neither."""
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"], item=request.POST["item"])
        job = send_receipt.add(order.pk)
    return JsonResponse({"order": order.pk, "job": job.id}, status=201)
