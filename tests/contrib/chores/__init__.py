"""An application of Django with tasks of `django.tasks`."""
