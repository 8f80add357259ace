"""A program that has moved to Holdfast: its tasks have the names that they had before."""

import os
from datetime import date

import holdfast

queue = holdfast.connect(os.environ.get("IMPORT_STORE", "jobs.db"))
ran: list[tuple[object, ...]] = []


@queue.task
def send(to: str, copies: int = 1) -> None:
    """Called `shop.send` before."""
    ran.append(("send", to, copies))


@queue.task("reports/daily")
def report(day: date) -> None:
    """Called `shop.make_report` before."""
    ran.append(("report", day))
