"""What people do to handlers by forms: set, roll back, delete and try. See `actions.py`."""

from typing import Any

from starlette.responses import Response

from ...core.access import confine
from ...core.errors import BadInput
from ...core.handler import DeleteHandler, Handler, RollBackHandler, SetHandler
from ...queue.handlers import HandlerOptions, new_handler
from . import audit
from .actions import Act, done, whole_number
from .pages import handlers as pages
from .view import PageOrResponse, View


async def set_handler(view: View) -> Response:
    """Make a new version of a handler."""
    kept: Handler = await view.ask(SetHandler(handler=_draft(view)))
    await audit.record(view, "set handler", task=kept.task, tenant=kept.tenant, version=kept.version)
    return done(view, "handler", to="/handler", task=kept.task)


async def roll_back_handler(view: View) -> Response:
    """Make a new version that is as an earlier one was."""
    task, version = view.field("task"), whole_number(view, "version") or 0
    kept: Handler = await view.ask(RollBackHandler(task=task, tenant=view.one_tenant, version=version))
    await audit.record(
        view, "roll back handler", task=task, tenant=view.one_tenant, version=kept.version, as_=kept.restores
    )
    return done(view, "rollback", to="/handler", task=task)


async def delete_handler(view: View) -> Response:
    """Delete a handler with all its versions."""
    task = view.field("task")
    await view.ask(DeleteHandler(task=task, tenant=view.one_tenant))
    await audit.record(view, "delete handler", task=task, tenant=view.one_tenant)
    return done(view, "unhandle", to="/handlers")


async def try_handler(view: View) -> PageOrResponse:
    """Run the code of the form with sample data, and show how that ended; nothing is saved."""
    if view.trials is None:
        raise BadInput("trial", "this server", needed="one that runs handlers")
    draft, sample = _draft(view), view.field("sample")
    # A client that may not set the handler may not run it either.
    confined = confine(view.grant, SetHandler(handler=draft)).handler
    await audit.record(view, "try handler", task=draft.task, tenant=confined.tenant, lang=draft.lang)
    result = await view.trials.run(confined, sample.strip("\n").encode())
    return await pages.page_of(view, draft, sample, result)


def _draft(view: View) -> Handler:
    """The handler that the form describes."""
    said: dict[str, Any] = {name: view.field(name) for name in (*pages.AROUND, "eid")}
    said |= {name: text for name in pages.DURATIONS if (text := view.field(name).strip())}
    said |= {name: count for name in pages.NUMBERS if (count := whole_number(view, name))}
    options: HandlerOptions = {**said, "batch": view.field("batch") == "yes"}  # type: ignore[typeddict-item]
    task, lang = view.field("task").strip(), view.field("lang").strip()
    return new_handler(task, view.field("body"), lang, options, tenant=view.one_tenant)


HANDLER_ACTIONS: dict[str, Act] = {
    "/handlers/set": set_handler,
    "/handlers/rollback": roll_back_handler,
    "/handlers/delete": delete_handler,
    "/handlers/try": try_handler,
}
