"""The addresses of the shop."""

from django.urls import path
from orders.views import add_order

urlpatterns = [path("orders/", add_order)]
