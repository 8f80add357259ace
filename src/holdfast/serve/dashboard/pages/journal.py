"""The journal of this server: jobs that are durable here, on their way to the store."""

import asyncio
from collections import deque
from pathlib import Path

from ....core.access import Scope
from ....core.errors import Forbidden
from ....journal.connection import JournalConnection
from ....journal.folder import JournalFolder, RefusedLine
from ....journal.status import JournalStatus, read_status
from ....store.common.clock import system_clock
from ...worker_process import HANDLERS_FOLDER
from .. import parts
from ..markup import Markup, el, join, user_text
from ..view import Page, View

REFUSED_SHOWN = 20


async def journal(view: View) -> Page:
    """What is in the journal, and whether it is ingested. It is shown while the store is away, too."""
    if view.grant.tenant is not None or not view.allows(Scope.READ):
        raise Forbidden("the journal is shown to clients that may read the jobs of all tenants")
    connection = view.exchange.connection
    if not isinstance(connection, JournalConnection):
        hint = el("code", "holdfast serve --store URL --journal /var/lib/app/journal")
        off = parts.empty(
            "This server has no journal", join("Jobs go to the store directly. Use one: ", hint)
        )
        return Page(title="Journal", body=join(parts.heading("Journal"), off), section="journal", live=None)
    path = connection.journal.folder.path
    statuses, refused = await asyncio.to_thread(_read, path)
    outage = connection.find_outage()
    body = join(
        parts.heading("Journal", lead=user_text(str(path))),
        _state(statuses[0], outage),
        [_card(status) for status in statuses],
        _refused(refused) if refused else None,
    )
    return Page(title="Journal", body=body, section="journal")


def _read(path: Path) -> tuple[list[JournalStatus], list[RefusedLine]]:
    """The journal, that of the worker beside it if there is one, and the last refused jobs."""
    paths = [path, *([inner] if (inner := path / HANDLERS_FOLDER).is_dir() else [])]
    refused = deque((line for one in paths for line in JournalFolder(one).refused()), REFUSED_SHOWN)
    return [read_status(str(one)) for one in paths], list(reversed(refused))


def _state(status: JournalStatus, outage: str) -> Markup:
    if outage:
        text = f"The store cannot be used: {outage}. New jobs are kept here, and ingested later."
        return el("p", text, class_="problem", role="status")
    text = "Ingesting." if status.waiting else "All jobs are in the store."
    return el("p", text, class_="notice", role="status")


def _card(status: JournalStatus) -> Markup:
    now_ms = system_clock()
    oldest = parts.moment(status.oldest_ms, now_ms) if status.oldest_ms else "none"
    position = f"segment {status.read_segment}, byte {parts.number(status.read_offset)}"
    until = parts.moment(status.ids_until_ms, now_ms) if status.ids_until_ms else None
    tiles = el(
        "div",
        parts.tile("Waiting", parts.number(status.waiting), colour="waiting"),
        parts.tile("Bytes", parts.number(status.bytes)),
        parts.tile("Refused", parts.number(status.refused), colour="failed" if status.refused else ""),
        parts.tile("Damaged", parts.number(status.damaged), colour="failed" if status.damaged else ""),
        class_="tiles",
    )
    facts = parts.facts(
        (
            ("Oldest waiting", oldest),
            ("Ingested up to", position),
            ("Segments", parts.number(status.segments)),
            ("Process", str(status.owner) if status.owner else "none"),
            ("Makes ids until", until),
        )
    )
    name = (
        "Jobs that clients add"
        if Path(status.path).name != HANDLERS_FOLDER
        else "Jobs that stored handlers add"
    )
    return parts.card(name, tiles, facts)


def _refused(refused: list[RefusedLine]) -> Markup:
    now_ms = system_clock()
    rows = [
        (
            el("span", line.id, class_="mono"),
            user_text(line.task),
            user_text(line.tenant) if line.tenant else None,
            parts.moment(line.at_ms, now_ms),
            user_text(line.error),
        )
        for line in refused
    ]
    table = parts.table(("Id", "Task", "Tenant", "When", "Why"), rows, caption="Refused jobs")
    hint = el("p", "All of them: ", el("code", "holdfast journal DIR --refused"), class_="note")
    return parts.card("Jobs that the store refused", table, hint)
