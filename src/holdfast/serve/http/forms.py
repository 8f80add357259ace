"""How records look in JSON over HTTP: types made of the records themselves, so that they cannot drift apart.

    a record                      its form
    an id (int)                   text of digits; none is null
    `Body` (JSON text or bytes)   `data`, any JSON, or `data_base64`
    bytes (domain, unique key)    `domain`, text, or `domain_base64`
    Place                         its name
    a tuple                       an object
    what has a default            may be left out

The forms decode what clients send, encode what they get, and are the schemas of the OpenAPI document.
"""

import types
from collections.abc import Callable
from enum import IntEnum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType, inspect
from msgspec.structs import astuple, replace

from ...core import commands as c
from ...core import queries as q
from ...core.bounds import BATCH_JOBS, HTTP_VALUES
from ...core.commands import RunSchedule
from ...core.defaults import FOLLOWED, Defaults
from ...core.errors import BadInput, TooLarge, as_fault
from ...core.ids import IdRange
from ...core.job import Job
from ...core.notes import StepResult
from ...core.queries import JobPage, SearchJobs
from ...core.verbs import REPLIES
from .values import (
    Base64,
    BodyForm,
    Id,
    Name,
    Whole,
    elements_type,
    is_too_long,
    read_base64,
    read_bodies,
    read_body,
    read_id,
    write_any_id,
    write_body,
    write_id,
    write_ids,
    write_json,
    write_key,
)

# Fields that are the id of a job, whatever record they are in; and the others.
_IDS = {"id", "job_id", "parent_id", "then_id", "last_id", "holder_id", "job_ids", "ids"}
_MORE_IDS = {
    (q.ListJobs, "after"),
    (q.ListChildren, "after"),
    (SearchJobs, "before"),
    (JobPage, "before"),
    (IdRange, "first"),
}
# Text that is JSON, and "" where there is none.
_JSON = {(c.Step, "result"), (c.NewStep, "result"), (StepResult, "result"), (c.SendSignal, "data")}
_NAMES = {"tenant", "task", "name", "log", "schedule", "into", "tasks", "tenants"}
# What is the server's own affair: see `core.access` of `held`.
_HIDDEN = {
    (c.Answer, "held"),
    (c.AnswerAll, "held"),
    (c.Step, "held"),
    (c.NewJob, "given"),
    (Job, "given"),
    (Job, "damaged"),
    (c.Claim, "taken_bytes"),
}
# The options of a task that a new job can override, by their fields.
_OPTIONS = {field: option for option, field in FOLLOWED.items()}
_Value = Callable[[Any], Any]


class Form(NamedTuple):
    """The type of a value in JSON; how it is read from that and written so. None: it is the same."""

    type: Any
    read: _Value | None = None
    write: _Value | None = None


class Part(NamedTuple):
    """A field of a form."""

    name: str
    type: Any
    required: bool


class PauseForm(msgspec.Struct, frozen=True, kw_only=True):
    """What claims pass by; null stands for any."""

    tenant: str | None = None
    task: str | None = None
    domain: str | None = None


@cache
def reply_form(kind: type[c.Command | q.Query]) -> Form:
    """The form of what is replied to a command or query."""
    if kind in (c.Add, RunSchedule):
        return Form(list[Id], None, write_ids)
    if kind is c.AnswerAll:
        return Form(list[Answered], None, lambda replies: list(map(_write_answered, replies)))
    if kind is c.Await:
        return form_of(c.Ended | None)
    if kind is q.SelectJobs:
        return Form(list[list[Any]], None, Raw)
    return form_of(REPLIES[kind])


@cache
def form_of(kind: Any) -> Form:
    """The form of a type."""
    if kind is q.Paused or kind == q.Paused:
        return Form(PauseForm, None, _write_pause)
    if kind is Any:
        return Form(BodyForm, None, lambda body: BodyForm(**write_body(body)))
    if isinstance(kind, type):
        if issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields"):
            return _struct_form(kind)
        if issubclass(kind, IntEnum):
            names = Literal[tuple(one.name for one in kind)]  # type: ignore[valid-type]
            return Form(names, lambda name: kind[name], lambda one: one.name)
        if kind is int:
            return Form(Whole)
        return Form(kind)
    return _generic_form(kind)


def _generic_form(kind: Any) -> Form:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_form(args)
    if origin is list or (origin is tuple and args[1:] == (...,)):
        one = form_of(args[0])
        made = tuple if origin is tuple else list
        return Form(
            list[one.type],  # type: ignore[name-defined]
            lambda values: made(map(one.read, values)) if one.read else made(values),
            lambda values: list(map(one.write, values)) if one.write else list(values),
        )
    if origin is tuple:
        return _tuple_form(kind, args)
    if origin is dict:
        value = form_of(args[1])
        return Form(
            dict[str, value.type],  # type: ignore[name-defined]
            None,
            lambda values: {str(key): _apply(value.write, one) for key, one in values.items()},
        )
    return Form(kind)


def _tuple_form(kind: Any, args: tuple[Any, ...]) -> Form:
    """A tuple is an object whose fields have names."""
    title, names = _TUPLES[kind]
    forms = [form_of(arg) for arg in args]
    parts = [Part(name, form.type, True) for name, form in zip(names, forms, strict=True)]
    made = define(title, parts, "")

    def read(value: Any) -> Any:
        return tuple(_apply(form.read, getattr(value, name)) for name, form in zip(names, forms, strict=True))

    def write(values: Any) -> Any:
        written = (_apply(form.write, value) for form, value in zip(forms, values, strict=True))
        return made(**dict(zip(names, written, strict=True)))

    return Form(made, read, write)


def _union_form(args: tuple[Any, ...]) -> Form:
    """What may be absent; unions of plain types are as they are."""
    forms = [form_of(arg) for arg in args if arg is not type(None)]
    kind: Any = Union[tuple(form.type for form in forms)]  # noqa: UP007 - made of a list
    if type(None) in args:
        kind = kind | None
    if len(forms) > 1:
        return Form(kind)
    (form,) = forms
    return Form(
        kind,
        (lambda value: None if value is None else form.read(value)) if form.read else None,  # type: ignore[misc]
        (lambda value: None if value is None else form.write(value)) if form.write else None,  # type: ignore[misc]
    )


def _apply(convert: _Value | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _write_pause(pause: q.Paused) -> PauseForm:
    tenant, task, domain = pause
    return PauseForm(
        tenant=tenant, task=task, domain=None if domain is None else domain.decode(errors="replace")
    )


class Field(NamedTuple):
    """How one field of a record is read from a form, and written into one."""

    name: str
    parts: tuple[Part, ...]
    # Replaces the values of its parts by that of the field; None: it is the same.
    read: Callable[[dict[str, Any]], None] | None
    write: Callable[[Any, dict[str, Any]], None]
    # Whether one of its two parts must be there.
    needs_one: bool = False


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What brings the values of several fields at once."""
    if len(names) < 2:
        return lambda value: tuple(getattr(value, name) for name in names)
    return attrgetter(*names)


def _struct_form(kind: type) -> Form:
    form = type_of(kind)
    fields = fields_of(kind)

    names = [part.name for field in fields for part in field.parts]
    reads = {part.name: field.read for field in fields if field.read is not None for part in field.parts}
    # All fields by one call: a new job has twenty of them, and most are not there.
    values = _getter(names)
    needed = [field for field in fields if field.needs_one]

    def read(value: Any) -> Any:
        said = {name: one for name, one in zip(names, values(value), strict=True) if one is not UNSET}
        for convert in dict.fromkeys([reads[name] for name in said if name in reads]):
            convert(said)
        for field in needed:
            if field.name not in said:
                raise BadInput(field.name, None, needed=f"there, or {field.parts[1].name}")
        if kind is c.NewJob and not _OPTIONS.keys().isdisjoint(said):
            said["given"] = tuple(sorted([_OPTIONS[field] for field in said if field in _OPTIONS]))
        return kind(**said)

    def write(record: Any) -> Any:
        shown: dict[str, Any] = {"state": record.state} if kind is Job else {}
        for field in fields:
            field.write(record, shown)
        return form(**shown)

    return Form(form, _read_by_kind(form, read, names) if kind is c.NewJob else read, write)


def _read_by_kind(form: Any, read: _Value, names: list[str]) -> _Value:
    """Read new jobs that differ in their data alone once, and then their data."""
    options = [name for name in names if name != "data"]
    values = attrgetter(*options)

    @lru_cache(maxsize=256)
    def prototype(said: tuple[Any, ...]) -> Any:
        return read(form(data=Raw(b"null"), **dict(zip(options, said, strict=True))))

    def read_quickly(value: Any) -> Any:
        # Without a follow-up job: its data may be large, and would be kept.
        if value.data is UNSET or value.then is not UNSET:
            return read(value)
        return replace(prototype(values(value)), data=read_body(value.data))

    return read_quickly


@cache
def type_of(kind: type) -> Any:
    """The form of a record, as a type of its own."""
    parts = [part for field in fields_of(kind) for part in field.parts]
    name = f"{kind.__name__}Request" if issubclass(kind, c.Command | q.Query) else kind.__name__
    return define(name, parts, (kind.__doc__ or "").partition("\n")[0], more=_COMPUTED.get(kind, ()))


def define(name: str, parts: list[Part], doc: str, more: tuple[Any, ...] = ()) -> Any:
    """A type of objects with these fields; what is not required may be left out."""
    fields: list[Any] = [(part.name, part.type) for part in parts if part.required]
    fields += [(part.name, _or_unset(part.type), UNSET) for part in parts if not part.required]
    namespace = {"__doc__": doc}
    made = msgspec.defstruct(
        name,
        [*fields, *more],
        frozen=True,
        kw_only=True,
        module=__name__,
        namespace=namespace,
        forbid_unknown_fields=True,
    )
    # `NewJob` is part of itself, and found here by its name.
    globals().setdefault(f"{name}Form", made)
    return made


def _or_unset(kind: Any) -> Any:
    return f"{kind} | UnsetType" if isinstance(kind, str) else Union[kind, UnsetType]  # noqa: UP007


# Counting


def check_values(raw: bytes, kind: Any) -> None:
    """Raise `TooLarge` if a list in a body is too long, or the body has too many values beside data.

    A decoder makes objects of all elements before it looks how many there are. Here reading stops at the
    first that is too many.
    """
    try:
        count = _count_values(raw, kind)
    except msgspec.ValidationError as error:
        if not is_too_long(error):
            raise
        where = str(error).partition(" - at `$.")[2].rstrip("`") or "list"
        raise TooLarge(where, "longer", needed=f"at most {BATCH_JOBS:,} elements") from None
    if count > HTTP_VALUES:
        raise TooLarge("body", "more values", needed=f"at most {HTTP_VALUES:,} beside data")


def _count_values(raw: bytes, kind: Any) -> int:
    """The commas of an object that are not in data, or more than may be.

    The data of a follow-up job is counted too: it is short.
    """
    outline = _outline_of(kind)
    found, count, counted = msgspec.json.decode(raw, type=outline.type), raw.count(b","), 0
    for name, inside in outline.inside.items():
        value = getattr(found, name)
        for part in [value] if isinstance(value, Raw) else astuple(value) if value else ():
            text = b"" if part is UNSET else bytes(part)
            if commas := text.count(b","):
                own = 0 if inside is Raw else _count_values(text, inside)
                count, counted = count - commas + own, counted + own
                if counted > HTTP_VALUES:
                    return counted
    return count


class _Outline(NamedTuple):
    """The fields of a form that may be long, and what is in them: a form, or `Raw`, which is data."""

    type: Any
    inside: dict[str, Any]


@cache
def _outline_of(kind: Any) -> _Outline:
    parts: list[Any] = []
    inside: dict[str, Any] = {}
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        found = _bare(field.type)
        is_list = isinstance(found, inspect.ListType)
        of = _bare(found.item_type) if is_list else found
        if is_list or isinstance(of, inspect.RawType | inspect.StructType):
            part = elements_type() | None | UnsetType if is_list else Raw | UnsetType
            parts.append((field.encode_name, part, UNSET))
        if isinstance(of, inspect.RawType):
            inside[field.encode_name] = Raw
        elif isinstance(of, inspect.StructType) and of.cls is not kind:
            inside[field.encode_name] = of.cls
    return _Outline(msgspec.defstruct(f"{kind.__name__}Outline", parts), inside)


def _bare(kind: Any) -> Any:
    """A type without its description, and without null."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        return _bare(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
    return kind


_TUPLES: dict[Any, tuple[str, tuple[str, ...]]] = {
    tuple[q.JobKind, int]: ("Count", ("of", "count")),
    tuple[q.JobKind, int, int]: ("CountFault", ("of", "kept", "found")),
    tuple[int, bool]: ("Appended", ("index", "is_new")),
    tuple[int, int]: ("SlotCount", ("slot", "count")),
    tuple[str | None, str, Defaults]: ("TaskDefaults", ("tenant", "task", "defaults")),
    tuple[str, str, int]: ("Pick", ("tenant", "task", "most")),
    tuple[dict[str, str], list[str]]: ("Report", ("facts", "complaints")),
}
_COMPUTED: dict[type, tuple[Any, ...]] = {Job: (("state", str),)}


@cache
def fields_of(kind: type) -> tuple[Field, ...]:
    """The fields of a record that clients see."""
    hints = get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        named = [(field.name, field.required) for field in msgspec.structs.fields(kind)]
    else:
        named = [(name, name not in kind._field_defaults) for name in kind._fields]  # type: ignore[attr-defined]
    return tuple(
        _field(kind, name, hints[name], required) for name, required in named if (kind, name) not in _HIDDEN
    )


def _field(kind: type, name: str, hint: Any, required: bool) -> Field:
    if hint in (Any, Any | None):
        return _paired(name, required, Raw, read_body, write_body)
    if hint in (bytes, bytes | None):
        return _paired(name, required, str, str.encode, write_key)
    if kind is c.NewJob and name in ("then", "on_failure"):
        return _plain(name, "NewJobForm | None", Form(None, _read_then, _write_then), required)
    if name in _IDS or (kind, name) in _MORE_IDS:
        if hint is int:
            of_id = Id if required else Id | None
            return _plain(name, of_id, Form(of_id, read_id, write_id), required)
        if hint == int | None:
            nullable = Form(Id | None, lambda text: None if text is None else read_id(text), write_any_id)
            return _plain(name, Id | None, nullable, required)
        return _plain(name, list[Id], Form(None, lambda ids: tuple(map(read_id, ids)), write_ids), required)
    if (kind, name) in _JSON:
        return _plain(name, Raw, Form(Raw, read_body, _write_json), required)
    if (kind, name) == (StepResult, "jobs"):
        return _plain(name, list[Id], Form(None, None, write_ids), required)
    if name == "more":
        return _plain(name, list[Raw], Form(None, read_bodies, write_ids), required)
    form = form_of(hint)
    return _plain(name, _named(name, hint, form.type), form, required)


def _write_json(text: str) -> Any:
    return write_json(text or "null")


def _named(name: str, hint: Any, kind: Any) -> Any:
    """A name has its bounds also where no command checks it, but a query looks for it."""
    if name not in _NAMES:
        return kind
    return {
        str: Name,
        str | None: Name | None,
        tuple[str, ...]: list[Name],
        tuple[str, ...] | None: list[Name] | None,
    }.get(hint, kind)


def _plain(name: str, kind: Any, form: Form, required: bool) -> Field:
    convert = form.read

    def read(said: dict[str, Any]) -> None:
        assert convert is not None
        said[name] = convert(said[name])

    def write(record: Any, shown: dict[str, Any]) -> None:
        shown[name] = _apply(form.write, getattr(record, name))

    return Field(name, (Part(name, kind, required),), None if convert is None else read, write)


def _paired(
    name: str,
    required: bool,
    kind: Any,
    read_text: _Value,
    write_both: Callable[[Any, str], dict[str, Any]],
) -> Field:
    """A field that is text or JSON, or under another name bytes."""
    as_bytes = f"{name}_base64"
    # Nullable, but for JSON, where null is a value.
    kind = kind if kind is Raw else kind | None

    def read(said: dict[str, Any]) -> None:
        text, raw = said.pop(name, None), said.pop(as_bytes, UNSET)
        if raw is UNSET:
            if text is not None:
                said[name] = read_text(text)
        elif text is None:
            said[name] = read_base64(as_bytes, raw)
        else:
            raise BadInput(as_bytes, "…", needed=f"absent where there is {name}")

    def write(record: Any, shown: dict[str, Any]) -> None:
        shown |= write_both(getattr(record, name), name)

    parts = (Part(name, kind, False), Part(as_bytes, Base64, False))
    return Field(name, parts, read, write, needs_one=required)


def _read_then(value: Any) -> c.NewJob | None:
    read = form_of(c.NewJob).read
    assert read is not None
    return None if value is None else read(value)


def _write_then(new: c.NewJob | None) -> Any:
    write = form_of(c.NewJob).write
    assert write is not None
    return None if new is None else write(new)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One of many answers: the job as it stands, or the error that refused it alone."""

    job: form_of(Job).type | None = None  # type: ignore[valid-type]
    code: str | None = None
    detail: str | None = None


def _write_answered(reply: Any) -> Answered:
    if isinstance(reply, BaseException):
        fault = as_fault(reply)
        return Answered(code=fault.code, detail=fault.text)
    write = form_of(Job).write
    assert write is not None
    return Answered(job=write(reply))
