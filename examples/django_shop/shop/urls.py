"""The addresses of the shop."""

from django.contrib import admin
from django.urls import include, path
from orders.views import add_order

urlpatterns = [
    path("orders/", add_order),
    path("admin/", admin.site.urls),
    # For staff; superusers, and who has the permission "Can manage jobs", can change things.
    path("jobs/", include("holdfast.contrib.django.urls")),
]
