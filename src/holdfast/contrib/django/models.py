"""No tables, only the permission to change jobs by the dashboard."""

from django.db import models


class ManagedJobs(models.Model):
    """What Django's users and groups can be permitted; there is no table of it."""

    class Meta:
        """For Django."""

        managed = False
        default_permissions = ()
        permissions = (("manage_jobs", "Can manage jobs"),)
        verbose_name = verbose_name_plural = "jobs"
