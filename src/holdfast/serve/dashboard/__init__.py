"""The dashboard: server-rendered pages over a store, at `/` of `holdfast serve` or in another application."""

from .app import dashboard as dashboard
