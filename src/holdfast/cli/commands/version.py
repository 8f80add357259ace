"""`holdfast version`."""

import platform
import sys

import click

from ..output import answer
from ..session import Session, settings


@click.command()
@settings()
@click.pass_obj
def version(session: Session) -> None:
    """Show the version."""
    # Not imported from `holdfast`: that would load the whole public API.
    number = sys.modules["holdfast"].__version__
    answer(
        {"holdfast": number, "python": platform.python_version()},
        f"holdfast {number}",
        as_json=session.as_json,
    )
