"""The settings of the shop: on SQLite, or on PostgreSQL if the environment names a database (PGDATABASE)."""

import os
from pathlib import Path

BASE_DIR = Path(os.environ.get("SHOP_FOLDER", Path(__file__).resolve().parent.parent))
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "for development only")
DEBUG = "SHOP_SECRET_KEY" not in os.environ
ALLOWED_HOSTS = ["*"]
USE_TZ = True

DATABASE: dict[str, object]
if "PGDATABASE" in os.environ:
    DATABASE = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "HOST": os.environ.get("PGHOST", ""),
        "PORT": os.environ.get("PGPORT", ""),
        "USER": os.environ.get("PGUSER", ""),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
    }
else:
    DATABASE = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "shop.db",
        # A transaction that reads and then writes takes the lock at its beginning.
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
DATABASES = {"default": DATABASE}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "holdfast.contrib.django",
    "orders",
]
HOLDFAST = {"database": "default", "retention": "7d"}

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
ROOT_URLCONF = "shop.urls"

# Receipts are files in a folder, instead of mails.
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = BASE_DIR / "receipts"
