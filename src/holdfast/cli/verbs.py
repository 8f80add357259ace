"""Commands made of the table of verbs (`core.verbs`).

    a verb ──▶ its record's fields ──▶ arguments and options ──▶ asked ──▶ shown
                       ▲                                           ▲         ▲
                       └──────────── its `VerbCommand` ────────────┴─────────┘

A verb without one works too: its record is asked, and its reply is shown as HTTP sends it.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click
import msgspec

from ..core.job import Job
from ..core.queries import PagedQuery, ask_all
from ..core.verbs import FIELDS, VERBS, VerbRow, in_path
from .output import Listing, Printout, answer, show_list
from .records import job_record
from .session import Session, now_ms, options_of
from .words import Duration, JobId, JsonText, Key, Moment, Rate, ScheduleName, TaskName

if TYPE_CHECKING:
    from ..queue.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])


class VerbCommand(NamedTuple):
    """What the command line adds to a verb."""

    # Asks, with the queue and the values of the options. It returns a `Printout`, entries of the `listing`,
    # or None if it has printed all. Its docstring is the help. None: the record is asked.
    ask: Callable[..., Any] | None = None
    listing: Listing | None = None
    # Arguments and options that are no fields, fields that are no options, and better words for others.
    params: tuple[click.Parameter, ...] = ()
    without: tuple[str, ...] = ()
    helps: Mapping[str, str] = {}
    # Whether it creates the store, and whether it has --create.
    creates: bool = False
    may_create: bool = False


# By command; `verb_commands` and `jobs` fill it.
VERB_COMMANDS: dict[str, VerbCommand] = {}
# Help of commands that are only groups.
GROUPS: dict[str, str] = {}


def verb_command(command: str, **more: Any) -> Callable[[F], F]:
    """Have a function ask a verb on the command line, by the command of the verb; see `VerbCommand`."""

    def add(function: F) -> F:
        VERB_COMMANDS[command] = VerbCommand(function, **more)
        return function

    return add


# What is never an option: the session has the tenant, pages are read to the last, claims belong to workers.
_HIDDEN = ("tenant", "hold", "redacted", "after_domain", "after_name", "after_tenant", "after_task")
_TIMES = ("run_at", "expires_at", "before_ms", "since_ms", "until_ms")
_METAVARS = {"job_id": "ID", "cron": "LINE", "tz": "ZONE"}
# What the texts of a type look like, after the description of the field.
_HINTS: dict[type, str] = {
    Duration: ": 30s, 2h 30m.",
    Moment: ": 2026-11-15T01:02:03Z.",
    Rate: ", or per time: 10/s, 100/m, 5/h.",
}


class _TaskOptionCommand(click.Command):
    """A command that may have --task and no arguments: for a bare argument the error suggests --task."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, but with a hint."""
        names = {param.name for param in self.params}
        if "task" not in names or any(isinstance(param, click.Argument) for param in self.params):
            return super().parse_args(ctx, args)
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            word = ctx.args[0]
            raise click.UsageError(f"{word!r} is an unexpected argument; did you mean --task {word}?", ctx)
        return rest


def names_of() -> list[str]:
    """The first words of all commands of the table."""
    return list(dict.fromkeys(verb.command.split()[0] for verb in VERBS if verb.command))


def build(name: str, verbs: Iterable[VerbRow] = VERBS) -> click.Command | None:
    """The command of that name with those below it; None: no verb has it."""
    rows: dict[str, VerbRow] = {}
    for verb in verbs:
        if verb.command.partition(" ")[0] == name:
            rows.setdefault(verb.command, verb)
    below = [command for command in rows if " " in command and "--" not in command]
    if not below:
        flags = {command.partition("--")[2]: verb for command, verb in rows.items() if "--" in command}
        return _command(_TaskOptionCommand, name, rows[name], flags) if name in rows else None
    if name in rows:
        group = _command(click.Group, name, rows[name], {}, invoke_without_command=True)
        assert isinstance(group, click.Group)
    else:
        group = click.Group(name, help=GROUPS.get(name))
    for command in below:
        group.add_command(_command(_TaskOptionCommand, command, rows[command], {}))
    return group


def _command(
    made: type[click.Command], name: str, verb: VerbRow, flags: Mapping[str, VerbRow], **more: Any
) -> click.Command:
    added = VERB_COMMANDS.get(name, VerbCommand())

    @click.pass_context
    def callback(ctx: click.Context, /, **values: Any) -> None:
        if ctx.invoked_subcommand is not None:
            return
        session = ctx.ensure_object(Session)
        given = [flag for flag in flags if values.pop(f"flag_{flag}")]
        if not given:
            _run(session, verb, values)
            return
        named = {field: values.pop(field) for field in in_path(verb.path)}
        is_empty = all(value is None or value is False or value == () for value in values.values())
        if len(given) > 1 or not is_empty:
            words = " ".join(field.upper() for field in named)
            raise click.UsageError(f"--{given[0]} needs {words} and nothing else")
        _run(session, flags[given[0]], named)

    params = _params(verb, added)
    for flag, row in flags.items():
        params.append(click.Option([f"--{flag}", f"flag_{flag}"], is_flag=True, help=_help(row)))
    params += [*added.params, *options_of(create=added.listing is not None or added.may_create)]
    return made(name.split()[-1], callback=callback, params=params, help=_help(verb), **more)


def _help(verb: VerbRow) -> str:
    return cleandoc((VERB_COMMANDS.get(verb.command, VerbCommand()).ask or verb.kind).__doc__ or "")


def _run(session: Session, verb: VerbRow, values: dict[str, Any]) -> None:
    added = VERB_COMMANDS.get(verb.command, VerbCommand())
    with session.open(create=session.create or added.creates) as queue:
        if added.ask is None:
            answer(*_plain_reply(verb, ask(queue, verb, values)), as_json=session.as_json)
            return
        found = added.ask(queue, **values)
        if added.listing is not None and found is not None:
            is_chosen = any(values[field] for field in values if field not in ("after", "limit", "count"))
            most = values.get("limit")
            show_list(added.listing, found, now_ms(queue), most, is_chosen, as_json=session.as_json)
        elif found is not None:
            answer(*found, as_json=session.as_json)


def _plain_reply(verb: VerbRow, found: Any) -> Printout:
    """A reply as HTTP sends it, but for a job."""
    from ..serve.http.forms import reply_form

    if found is None:
        return Printout({"done": True}, "done")
    if isinstance(found, Job):
        return Printout(job_record(found), f"job {found.id}: {found.state}")
    write = reply_form(verb.kind).write
    value = msgspec.to_builtins(found if write is None else write(found))
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
    return Printout(value, text)


# From options to a record


def record_of(verb: VerbRow, values: Mapping[str, Any], *, tenant: str = "") -> Any:
    """The record that a verb asks, of the values of its options."""
    said: dict[str, Any] = {name: value for name, value in verb.fixed.items() if value is not None}
    for name, hint in get_type_hints(verb.kind).items():
        if name in {"hold", *verb.fixed} or name not in verb.kind.__struct_fields__:
            continue
        if name == "tenant":
            if hint is str:
                said[name] = tenant
        elif (inner := _nested(hint)) is not None:
            parts = {part: values[part] for part in get_type_hints(inner) if values.get(part) is not None}
            said[name] = inner(**parts)
        elif values.get(name) is not None:
            said[name] = values[name]
    return verb.kind(**said)


def ask(queue: "Queue", verb: VerbRow, values: Mapping[str, Any]) -> Any:
    """The reply to a verb; of a list all pages."""
    from ..core.checks import check_command
    from ..core.incoming import check_incoming

    asked = record_of(verb, values, tenant=queue.tenant)
    check_incoming(asked)
    if isinstance(asked, PagedQuery):
        return ask_all(queue.connection.ask, asked)
    if not asked.is_query:
        check_command(asked)
    return queue.connection.ask(asked)


# From fields to options


class FieldOption(NamedTuple):
    """A field that is an argument or an option."""

    name: str
    hint: Any
    required: bool
    default: Any


def _params(verb: VerbRow, added: VerbCommand) -> list[click.Parameter]:
    """Arguments for the fields in the path, and options for all others that may be chosen."""
    fields = {one.name: one for one in _fields(verb.kind, {*_HIDDEN, *verb.fixed, *added.without})}
    params: list[click.Parameter] = []
    for name in in_path(verb.path):
        if (one := fields.pop(name, None)) is not None:
            kind = ScheduleName() if "/schedules/" in verb.path else _type(name, one.hint)
            params.append(click.Argument([name], type=kind, metavar=_METAVARS.get(name)))
    if issubclass(verb.kind, PagedQuery):
        fields.pop("limit", None)
    return params + [_option(one, added.helps.get(one.name, "")) for one in fields.values()]


def _fields(kind: type[msgspec.Struct], left_out: set[str]) -> Iterator[FieldOption]:
    """The fields of a record, and instead of a limit or schedule in it the fields of that."""
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        if field.name in left_out:
            continue
        if (inner := _nested(hints[field.name])) is not None:
            yield from _fields(inner, left_out)
        else:
            default = None if field.required else field.default
            yield FieldOption(field.name, hints[field.name], field.required, default)


def _nested(hint: Any) -> Any:
    """The record in a field whose fields are options themselves; None: it is a value."""
    kinds = [kind for kind in _alternatives(hint) if kind is not type(None)]
    is_record = len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], msgspec.Struct)
    return kinds[0] if is_record else None


def _option(field: FieldOption, text: str) -> click.Option:
    name, kind = field.name, _type(field.name, field.hint)
    text = text or FIELDS.get(name, "")
    if type(kind) in _HINTS:
        text = text.rstrip(".") + _HINTS[type(kind)]
    word = name.removesuffix("_ms").removesuffix("_id").replace("_", "-")
    if field.hint is bool:
        words = f"--{word}/--no-{word}" if field.default else f"--{word}"
        return click.Option([words, name], is_flag=True, default=field.default, help=text)
    if field.default not in (None, "", b"", 0, ()):
        text += f"  [{field.default}]"
    metavar = _METAVARS.get(name) or getattr(kind, "metavar", None)
    return click.Option([f"--{word}", name], type=kind, required=field.required, help=text, metavar=metavar)


def _type(name: str, hint: Any) -> Any:
    """The type of an option, by the name and the type of its field."""
    if name == "job_id" or name.endswith("_id"):
        return JobId()
    if name == "task":
        return TaskName()
    if name in _TIMES:
        return Moment()
    if name.endswith("_ms"):
        return Duration()
    kinds = [kind for kind in _alternatives(hint) if kind is not type(None)]
    if bytes in kinds and str not in kinds:
        return Key()
    if name == "rate":
        return Rate()
    if Any in kinds:
        return JsonText()
    if get_origin(kinds[0]) is Literal:
        return click.Choice(get_args(kinds[0]))
    return {int: click.INT, float: click.FLOAT}.get(kinds[0], click.STRING)


def _alternatives(hint: Any) -> Sequence[Any]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
