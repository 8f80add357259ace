"""What is in the database."""

from django.db import models


class Order(models.Model):
    """An order, and when its receipt was sent."""

    email = models.EmailField()
    item = models.CharField(max_length=100)
    receipt_sent_at = models.DateTimeField(null=True)
