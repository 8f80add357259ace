"""A program with Sentry, for `holdfast worker`: its events are lines of a file."""

import json
import os
from pathlib import Path

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import holdfast
from holdfast.contrib.sentry import report_failures


class FileTransport(Transport):
    """Writes events to a file, instead of sending them."""

    def capture_envelope(self, envelope: Envelope) -> None:
        """Append the event."""
        with Path(os.environ["SENTRY_EVENTS"]).open("a") as file:
            file.write(json.dumps(envelope.get_event()) + "\n")


sentry_sdk.init(dsn="https://key@localhost/1", transport=FileTransport, auto_enabling_integrations=False)
queue = holdfast.connect(os.environ["SENTRY_STORE"])
report_failures(queue)


@queue.task(attempts=2, backoff="0s")
def fail(word: str) -> None:
    """Never works."""
    raise LookupError("there is no such word")
