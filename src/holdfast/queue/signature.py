"""Encodes and decodes the arguments of a task: one JSON object, typed by the function's annotations."""

import inspect
import re
from collections.abc import Callable, Collection, Container, Iterable
from functools import cached_property
from typing import Any, get_args, get_origin

import msgspec
from msgspec.inspect import CustomType, type_info
from msgspec.structs import asdict

from ..core.bounds import DATA_BYTES
from ..core.errors import BadInput, Unquoted
from ..core.family import NO_ARGUMENTS
from ..core.job import Body, Job
from .definition import annotations_of
from .encoding import (
    PLAIN,
    changes,
    decode,
    encode_data,
    find_inexact,
    from_json_type,
    has_exact,
    is_plain,
    is_readable,
    json_encoder,
    name_of,
    part_of,
    reason_and_path,
)
from .options import NO_CONNECTION, JobOptions

# A program that only adds jobs does not import the module of contexts.
_CONTEXTS, _CONTEXT_MODULE = ("Context", "AsyncContext"), f"{__package__}.context"
# From the arguments of a call to its data; None: use `Signature.write`.
QuickWrite = Callable[[tuple[Any, ...], dict[str, Any]], str | None]


class Signature:
    """Encodes and decodes the arguments of a function by its annotations."""

    def __init__(self, name: str, function: Callable[..., Any], provided: Collection[Any] = ()) -> None:
        self._name = name
        signature = inspect.signature(function)
        known, unknown = _hints(function)
        # Without those that a partial has bound.
        hints = {word: kind for word, kind in known.items() if word in signature.parameters}
        # The name of the parameter that gets the context, and its kind.
        self.context = _context(name, function, hints)
        # The parameters that get what `on_start` provides, and its types.
        self.provided = {word: kind for word, kind in hints.items() if kind in provided}
        kept = [p for word, p in signature.parameters.items() if not self._is_given(word)]
        self._signature = signature.replace(parameters=kept)
        named = [p for p in kept if _has_name(name, p)]
        self.names, self.extras = [p.name for p in named], len(named) < len(kept)
        # Decodes each argument that `**rest` takes.
        self._extra = _extra_decoder(hints.get(kept[-1].name, Any)) if self.extras else None
        self._kinds = [hints.get(p.name, Any) for p in named]
        self._one = self._kinds[0] if len(named) == 1 else None
        self.whole = self._one is Job
        self._required = [p.name for p in named if p.default is p.empty and not self.whole]
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._only: msgspec.json.Decoder[Any] | None = None
        self.quick_write: QuickWrite = _never
        self.has_exact = not self.whole and any(has_exact(_info_of(kind)) for kind in hints.values())
        # For complete arguments: fields without a default are required.
        self._quick_read: Callable[[str], Any] | None = None
        if not self.whole:
            _check_known(name, {word: unknown[word] for word in self._required if word in unknown})
            kinds = dict(zip(self.names, self._kinds, strict=True))
            _check_readable(name, {required: kinds[required] for required in self._required})
            try:
                arguments = _arguments(named, self._kinds, strict=not self.extras)
                self._decoder = _decoder_of(arguments)
            except TypeError as error:
                raise _unsupported(name, kinds, error) from None
            self._only = _decoder_of(self._one) if self._one else None
            if len(self._required) == len(self.names) and not self.extras:
                self._quick_read = self._decoder.decode
            if not self.extras:
                self.quick_write = _compiled(arguments, self._decoder)

    def _is_given(self, word: str) -> bool:
        """Whether a parameter is no argument of the job."""
        return word in self.provided or (self.context is not None and word == self.context[0])

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
        """Encode the arguments of a call; the error for a wrong argument names it."""
        if self.whole:
            return self.encode(args[0] if args else kwargs)
        self._check_names(kwargs)
        return encode_data(f"arguments of task {self._name}", self._bound(args, kwargs), self.decode)

    def check_exact(self, args: tuple[Any, ...], kwargs: dict[str, Any], data: Body) -> None:
        """Refuse text or a number for a `Decimal`, a UUID or an enum; called if `has_exact`.

        By name they are what JSON has.
        """
        if found := find_inexact(self._bound(args, kwargs), self.decode(data)):
            path, value, kind = found
            found_type = Unquoted(f"of type {type(value).__name__}")
            raise BadInput(
                name_of(path, f"arguments of task {self._name}"),
                found_type,
                needed=f"of type {kind.__name__}",
            )

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments of a call, by their names."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._wrong_call(str(error)) from None
        named = dict(bound.arguments)
        if self.extras:
            last = list(self._signature.parameters)[-1]
            named |= named.pop(last, {})
        return named

    def encode(self, data: Any) -> Body:
        """Encode the data of a call by name; data that the function would not accept is refused.

        Arguments may be missing, because a follow-up job gets one more; `decode` refuses missing ones.
        """
        return encode_data(f"data of task {self._name}", data, self._decode_partial)

    def read(self, data: Body) -> dict[str, Any]:
        """Decode the arguments of a call; data that is not an object is the value of the only parameter."""
        if self._quick_read is not None and type(data) is str and data[:1] == "{":
            try:
                return asdict(self._quick_read(data))
            except msgspec.DecodeError:
                # `decode` raises an error with the reason.
                pass
        values: Any = self.decode(data)
        return values if self._is_object(data) else {self.names[0]: values}

    def decode(self, data: Body) -> Any:
        """Data with the types of the annotations, in its own structure."""
        return self._decode_by(self._decoder, data)

    def missing(self, given: Container[str]) -> list[str]:
        """The required arguments that are missing."""
        return [name for name in self._required if name not in given]

    def check_optional(self, caller: str) -> None:
        """Refuse a required parameter, for a caller that has no arguments."""
        for name in self.missing(()):
            needed = f"one with a default: {caller} calls the task without arguments"
            raise BadInput(f"parameter {name} of task {self._name}", Unquoted("required"), needed=needed)

    def check_follower(self, data: Body, into: str) -> None:
        """Refuse a follow-up job if the function would not accept its data together with the result."""
        if self.whole:
            return
        if not into and data != NO_ARGUMENTS:
            self.decode(data)
        elif not into and not (self.names or self.extras):
            raise BadInput("then", f"task {self._name}", needed="a task with a parameter for the result")
        elif into:
            self._check_into(data, into)

    def _check_into(self, data: Body, into: str) -> None:
        if into not in self.names and not self.extras:
            names = ", ".join(self.names) or "it has none"
            raise BadInput("into", into, needed=f"a parameter of task {self._name}: {names}")
        given = self._decode_partial(data)
        if into in given:
            raise BadInput("into", into, needed=f"an argument that is not given to task {self._name} by then")
        if missing := self.missing({*given, into}):
            found = f"without {', '.join(missing)}"
            raise BadInput(
                f"arguments of task {self._name}",
                found,
                needed=f"all there but {into}, which the result gives",
            )

    def _decode_partial(self, data: Body) -> Any:
        return self._decode_by(self._partial, data)

    @cached_property
    def _partial(self) -> "msgspec.json.Decoder[Any] | None":
        """Like `_decoder`, but arguments may be missing."""
        if self.whole:
            return None
        fields = [_optional(name, kind) for name, kind in zip(self.names, self._kinds, strict=True)]
        return _decoder_of(
            msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=not self.extras)
        )

    def _decode_by(self, decoder: "msgspec.json.Decoder[Any] | None", data: Body) -> Any:
        if decoder is None:
            return decode(data)
        if not self._is_object(data):
            return self._decode_only(data)
        try:
            values = decoder.decode(data)
        except msgspec.DecodeError as error:
            self._check_names(_names(data))
            raise _told(f"arguments of task {self._name}", error) from None
        named = {name: value for name in self.names if (value := getattr(values, name)) is not msgspec.UNSET}
        return named if self._extra is None else named | self._decode_extras(self._extra, data)

    def _decode_extras(self, decoder: "msgspec.json.Decoder[Any]", data: Body) -> dict[str, Any]:
        """Decode the arguments that `**rest` takes, by its annotation."""
        return {
            name: _decode_along(decoder, f"argument {name} of task {self._name}", raw)
            for name, raw in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items()
            if name not in self.names
        }

    def _wrong_call(self, why: str) -> BadInput:
        """The error of a call whose arguments do not match the parameters; `why`: in the words of Python."""
        if found := re.match(r"missing .*'(\w+)'", why):
            return BadInput(f"argument {found[1]} of task {self._name}", Unquoted("missing"), needed="given")
        needed = f"{self._name}({', '.join(self.names)})"
        return BadInput(f"call of task {self._name}", Unquoted(f"wrong ({why})"), needed=needed)

    def _is_object(self, data: Body) -> bool:
        return type(data) is str and (self._only is None or data[:1] == "{" or data.lstrip()[:1] == "{")

    def _check_names(self, given: Iterable[str]) -> None:
        unknown = [name for name in given if name not in self.names]
        if unknown and not (self.extras or self.whole):
            needed = f"one of {', '.join(self.names)}" if self.names else "absent: the task takes none"
            if options := [name for name in unknown if name in JobOptions.__annotations__]:
                needed += f"; options of the job go to using({options[0]}=…).add(…)"
            elif "connection" in unknown:
                needed = NO_CONNECTION
            raise BadInput(f"argument of task {self._name}", ", ".join(unknown), needed=needed)

    def _decode_only(self, data: Body) -> Any:
        """Decode data that is not an object, as the value of the only parameter."""
        if self._only is None:
            needed = (
                f"an object with {', '.join(self.names)}" if self.names else "absent: the task takes none"
            )
            raise BadInput(f"data of task {self._name}", "bytes", needed=needed)
        return _decode_along(self._only, f"data of task {self._name}", data)


class BatchSignature(Signature):
    """Encodes and decodes one item of a batch: the function takes a list of items."""

    def __init__(self, name: str, function: Callable[..., Any], provided: Collection[Any] = ()) -> None:
        super().__init__(name, function, provided)
        listed = self._one is Any or self._one is list or get_origin(self._one) is list
        if self.context or self.extras or len(self.names) != 1 or not listed:
            found = f"({', '.join(self.names)})" if not self.context else "with a context"
            needed = "one parameter, a list: jobs of a batch have no arguments of their own"
            raise BadInput(f"signature of batch task {name}", found, needed=needed)
        (kind,) = get_args(self._one) or (Any,)
        self._item = _decoder_of(kind)
        self.quick_write = _never

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
        """Encode an item."""
        if len(args) != 1 or kwargs:
            found = f"{len(args)} and {', '.join(kwargs) or 'no others'}"
            raise BadInput(f"arguments of batch task {self._name}", found, needed="one item")
        return self.encode(args[0])

    def encode(self, data: Any) -> Body:
        """Encode an item; one that does not match the annotation is refused."""
        return encode_data(f"item of task {self._name}", data, self.decode)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The item."""
        return args[0]

    def missing(self, given: Container[str]) -> list[str]:
        """No arguments are missing: an item is complete or wrong."""
        return []

    def _check_into(self, data: Body, into: str) -> None:
        raise BadInput("into", into, needed=f"absent: batch task {self._name} gets the result as its item")

    def read(self, data: Body) -> dict[str, Any]:
        """A batch of one."""
        return {self.names[0]: [self.decode(data)]}

    def decode(self, data: Body) -> Any:
        """Decode one item of a batch."""
        return _decode_along(self._item, f"item of task {self._name}", data)


def _decode_along(decoder: "msgspec.json.Decoder[Any]", what: str, data: Body | msgspec.Raw) -> Any:
    """Decode data by an annotation: JSON, or bytes as they are."""
    try:
        return msgspec.convert(data, decoder.type) if isinstance(data, bytes) else decoder.decode(data)
    except msgspec.DecodeError as error:
        raise _told(what, error) from None


def _info_of(kind: Any) -> Any:
    try:
        return type_info(kind)
    except TypeError:
        # The decoder refuses it: see `_unsupported`.
        return None


def _decoder_of(kind: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind, dec_hook=from_json_type)


def _extra_decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    try:
        return _decoder_of(kind)
    except TypeError:
        # Such as `Unpack[Options]`, which is for type checkers.
        return _decoder_of(Any)


def _check_known(task: str, unknown: dict[str, Any]) -> None:
    """Refuse a required parameter whose type cannot be looked up: its values would stay those of JSON."""
    for name, hint in unknown.items():
        needed = "a type that is known when the task is declared: not imported for type checkers alone, "
        raise BadInput(
            f"parameter {name} of task {task}",
            Unquoted(f"of type {hint}"),
            needed=f"{needed}nor local to a function, nor defined below",
        )


def _check_readable(task: str, required: dict[str, Any]) -> None:
    """Refuse a required parameter of a type that cannot be made of JSON: no call would work."""
    for name, kind in required.items():
        info = _info_of(kind)
        if isinstance(info, CustomType) and not is_readable(info.cls):
            found = Unquoted(f"of type {getattr(kind, '__name__', kind)}")
            needed = "a type that JSON can be read as; see docs/tasks.md"
            raise BadInput(f"parameter {name} of task {task}", found, needed=needed)


def _unsupported(task: str, kinds: dict[str, Any], error: TypeError) -> BadInput:
    """The error for an annotation that msgspec does not support; it names the parameter."""
    what, kind = f"parameters of task {task}", "another"
    for name, hint in kinds.items():
        try:
            _decoder_of(hint)
        except TypeError as found:
            what, kind, error = f"parameter {name} of task {task}", inspect.formatannotation(hint), found
            break
    reason = str(error).partition(" - type `")[0]
    return BadInput(what, Unquoted(f"of type {kind}"), needed=f"a type that JSON can be read as ({reason})")


def _told(what: str, error: msgspec.DecodeError) -> BadInput:
    """The error for data that does not have the types of the annotations, by what msgspec says."""
    text, path = reason_and_path(error)
    if found := re.match(r"Object missing required field `(\w+)`", text):
        return BadInput(part_of(f"{path}.{found[1]}", what), Unquoted("missing"), needed="given")
    what = part_of(path, what)
    if found := re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", text):
        return BadInput(what, Unquoted(f"of type {found[2]}"), needed=f"of type {found[1]}")
    return BadInput(what, Unquoted("wrong"), needed=f"such as its function takes ({text})")


def _names(data: Body) -> Iterable[str]:
    """The names in data that could not be decoded, if it is an object."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return ()
    return found if isinstance(found, dict) else ()


def _context(name: str, function: Callable[..., Any], hints: dict[str, Any]) -> tuple[str, type] | None:
    """The parameter that gets the context; a second one, or one of the wrong kind, is refused."""
    kinds = {word: _context_kind(hint) for word, hint in hints.items()}
    found = [(word, kind) for word, kind in kinds.items() if kind is not None]
    if not found:
        return None
    is_coroutine = inspect.iscoroutinefunction(function)
    wanted = "AsyncContext" if is_coroutine else "Context"
    if len(found) > 1 or found[0][1].__name__ != wanted:
        texts = ", ".join(f"{word}: {kind.__name__}" for word, kind in found)
        which = "async def" if is_coroutine else "def"
        needed = f"one {wanted}, as its function is made by {which}"
        raise BadInput(f"context of task {name}", texts, needed=needed)
    return found[0]


def _context_kind(hint: Any) -> type | None:
    """The kind of context in an annotation, also in `Context | None`; None: there is none."""
    options = [kind for kind in get_args(hint) if kind is not type(None)] or [hint]
    if len(options) != 1 or getattr(options[0], "__module__", "") != _CONTEXT_MODULE:
        return None
    kind: type | None = options[0] if options[0].__name__ in _CONTEXTS else None
    return kind


def _has_name(task: str, parameter: inspect.Parameter) -> bool:
    """Whether a parameter takes an argument by name: all except `**rest`; one without a name is refused."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
        star = "*" if parameter.kind == parameter.VAR_POSITIONAL else ""
        raise BadInput(
            f"parameter {star}{parameter.name} of task {task}",
            parameter.kind.description,
            needed="a named parameter: arguments travel by name",
        )
    if parameter.name == "self" and parameter.default is parameter.annotation is parameter.empty:
        needed = "absent: a job has no object; decorate a function or a staticmethod, and for the context of"
        raise BadInput(f"parameter self of task {task}", "there", needed=f"{needed} the run use ctx: Context")
    return parameter.kind != parameter.VAR_KEYWORD


def _arguments(
    parameters: list[inspect.Parameter], kinds: list[Any], *, strict: bool
) -> type[msgspec.Struct]:
    """A record type whose constructor takes the arguments of the function."""
    by_position: list[Any] = []
    by_name: list[Any] = []
    for parameter, kind in zip(parameters, kinds, strict=True):
        fields = by_name if parameter.kind == parameter.KEYWORD_ONLY else by_position
        required = parameter.default is parameter.empty
        fields.append((parameter.name, kind) if required else _optional(parameter.name, kind))
    bases = (msgspec.defstruct("Named", by_name, kw_only=True, gc=False),) if by_name else None
    return msgspec.defstruct("Arguments", by_position, bases=bases, forbid_unknown_fields=strict, gc=False)


def _optional(name: str, kind: Any) -> tuple[str, Any, Any]:
    return name, kind | msgspec.UnsetType, msgspec.UNSET


def _compiled(arguments: type[msgspec.Struct], decoder: "msgspec.json.Decoder[Any]") -> QuickWrite:
    """A function that encodes the arguments of most calls, and decodes them as the worker will."""
    encode, decode = json_encoder.encode, decoder.decode

    def quick_write(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        try:
            call = arguments(*args, **kwargs)
            raw = encode(call)
            decode(raw)
            # Most arguments are text and numbers: these are checked without a function call.
            plain = True
            for value in args:
                plain = plain and (type(value) in PLAIN or is_plain(value))
            for name in kwargs:
                plain = plain and (type(kwargs[name]) in PLAIN or is_plain(kwargs[name]))
            if len(raw) > DATA_BYTES or not (plain or not changes(call)):
                return None
        except Exception:
            # `write` finds the same error, and names the argument.
            return None
        return raw.decode()

    return quick_write


def _never(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """Always use `write`."""


def _hints(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The annotations of a function that are known here as types, and the others as they are.

    Contexts are recognised by their names.
    """
    known, unknown = annotations_of(function)
    named = {word: _context_name(str(text)) for word, text in unknown.items()}
    contexts = {word: _context_of(kind) for word, kind in named.items() if kind in _CONTEXTS}
    return known | contexts, {word: text for word, text in unknown.items() if word not in contexts}


def _context_of(name: str) -> type:
    from . import context

    kind: type = getattr(context, name)
    return kind


def _context_name(text: str) -> str:
    """The last part of a dotted name, also in `name | None` and `Optional[name]`."""
    inner = text.partition("Optional[")[2].rstrip("]") or text
    names = [part.strip() for part in inner.split("|")]
    return next((name for name in names if name != "None"), "").rpartition(".")[2]
