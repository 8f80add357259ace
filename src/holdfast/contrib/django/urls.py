"""The address of the dashboard: `path("jobs/", include("holdfast.contrib.django.urls"))`."""

from django.db.transaction import non_atomic_requests
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

from .dashboard import dashboard_page

app_name = "holdfast"
# Its forms have tokens of their own; a transaction of the request would lock out its changes on SQLite.
page = csrf_exempt(non_atomic_requests(dashboard_page))
urlpatterns = [re_path(r"^(?P<path>.*)$", page, name="dashboard")]
