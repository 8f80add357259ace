"""How a task's arguments are written and read: one JSON object, along the function's annotations."""

import inspect
from collections.abc import Callable, Container, Iterable
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import asdict

from ..core.bounds import DATA_BYTES
from ..core.errors import BadInput
from ..core.following import NO_ARGUMENTS
from ..core.job import Body, Job
from .context import AsyncContext, Context
from .encoding import PLAIN, changes, decode, encode_data, is_plain

_CONTEXTS = {kind.__name__: kind for kind in (Context, AsyncContext)}
# From the arguments of a call to its data; None: `Signature.write` is to look at them.
QuickWrite = Callable[[tuple[Any, ...], dict[str, Any]], str | None]


class Signature:
    """How a function's arguments are written and read, along its annotations."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        hints = _hints(function)
        signature = inspect.signature(function)
        # The name of the parameter that gets the context, and its kind.
        self.context = _context(name, function, hints)
        kept = [p for p in signature.parameters.values() if not self.context or p.name != self.context[0]]
        self._signature = signature.replace(parameters=kept)
        named = [p for p in kept if _has_name(name, p)]
        self.names = [p.name for p in named]
        self.extras = len(named) < len(kept)
        self._kinds = [hints.get(p.name, Any) for p in named]
        self._one = self._kinds[0] if len(named) == 1 else None
        self.whole = self._one is Job
        self._required = [p.name for p in named if p.default is p.empty and not self.whole]
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._only: msgspec.json.Decoder[Any] | None = None
        self.quick_write: QuickWrite = _never
        # Where every argument must be there, so that none is left out of what is read.
        self._quick_read: Callable[[str], Any] | None = None
        if not self.whole:
            arguments = _arguments(named, self._kinds, strict=not self.extras)
            self._decoder = msgspec.json.Decoder(arguments)
            self._only = msgspec.json.Decoder(self._one) if self._one else None
            if len(self._required) == len(self.names) and not self.extras:
                self._quick_read = self._decoder.decode
            if not self.extras:
                self.quick_write = _compiled(arguments, self._decoder)

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
        """The arguments of a call as data; what the function would not take is refused by its name."""
        if self.whole:
            return self.encode(args[0] if args else kwargs)
        self._check_names(kwargs)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadInput(
                f"call of task {self._name}", args or kwargs, needed=f"such as its function takes ({error})"
            ) from None
        named = dict(bound.arguments)
        if self.extras:
            last = list(self._signature.parameters)[-1]
            named |= named.pop(last, {})
        return encode_data(f"arguments of task {self._name}", named, self.decode)

    def encode(self, data: Any) -> Body:
        """Data of a call by name, as it is written; what the function would not take is refused.

        Arguments may be missing: a job that follows another gets one more. `decode` refuses that.
        """
        return encode_data(f"data of task {self._name}", data, self._decode_partial)

    def read(self, data: Body) -> dict[str, Any]:
        """Data as the arguments of a call; what is not an object goes to the only parameter."""
        if self._quick_read is not None and type(data) is str and data[:1] == "{":
            try:
                return asdict(self._quick_read(data))
            except msgspec.DecodeError:
                # `decode` says what is wrong.
                pass
        values: Any = self.decode(data)
        return values if self._is_object(data) else {self.names[0]: values}

    def decode(self, data: Body) -> Any:
        """Data with the types that the function takes, in the shape that it has."""
        return self._decode_by(self._decoder, data)

    def missing(self, given: Container[str]) -> list[str]:
        """The arguments that a call with those given still needs."""
        return [name for name in self._required if name not in given]

    def check_follower(self, data: Body, into: str) -> None:
        """Refuse a job that follows another where the function would not take its data with the result."""
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
        """As `_decoder`, where arguments may still be missing."""
        if self.whole:
            return None
        fields = [_optional(name, kind) for name, kind in zip(self.names, self._kinds, strict=True)]
        return msgspec.json.Decoder(
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
            raise BadInput(
                f"arguments of task {self._name}", "data", needed=f"such as its function takes ({error})"
            ) from None
        named = {name: value for name in self.names if (value := getattr(values, name)) is not msgspec.UNSET}
        return msgspec.json.decode(data) | named if self.extras else named

    def _is_object(self, data: Body) -> bool:
        return type(data) is str and (self._only is None or data[:1] == "{" or data.lstrip()[:1] == "{")

    def _check_names(self, given: Iterable[str]) -> None:
        unknown = [name for name in given if name not in self.names]
        if unknown and not (self.extras or self.whole):
            needed = f"one of {', '.join(self.names)}" if self.names else "absent: the task takes none"
            raise BadInput(f"argument of task {self._name}", ", ".join(unknown), needed=needed)

    def _decode_only(self, data: Body) -> Any:
        """Data that is not an object, as the only parameter takes it."""
        if self._only is None:
            needed = (
                f"an object with {', '.join(self.names)}" if self.names else "absent: the task takes none"
            )
            raise BadInput(f"data of task {self._name}", "bytes", needed=needed)
        return _decode_along(self._only, f"data of task {self._name}", data)


class BatchSignature(Signature):
    """How one item of a batch is written and read: the function takes a list of them."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name, function)
        listed = self._one is Any or self._one is list or get_origin(self._one) is list
        if self.context or self.extras or len(self.names) != 1 or not listed:
            found = f"({', '.join(self.names)})" if not self.context else "with a context"
            needed = "one parameter, a list: jobs of a batch have no arguments of their own"
            raise BadInput(f"signature of batch task {name}", found, needed=needed)
        (kind,) = get_args(self._one) or (Any,)
        self._item = msgspec.json.Decoder(kind)
        self.quick_write = _never

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
        """An item as data."""
        if len(args) != 1 or kwargs:
            found = f"{len(args)} and {', '.join(kwargs) or 'no others'}"
            raise BadInput(f"arguments of batch task {self._name}", found, needed="one item")
        return self.encode(args[0])

    def encode(self, data: Any) -> Body:
        """An item as it is written; one that does not fit the annotation is refused."""
        return encode_data(f"item of task {self._name}", data, self.decode)

    def missing(self, given: Container[str]) -> list[str]:
        """None: an item is whole, or does not fit."""
        return []

    def _check_into(self, data: Body, into: str) -> None:
        raise BadInput("into", into, needed=f"absent: batch task {self._name} gets the result as its item")

    def read(self, data: Body) -> dict[str, Any]:
        """A batch of one."""
        return {self.names[0]: [self.decode(data)]}

    def decode(self, data: Body) -> Any:
        """Data as one item of a batch."""
        return _decode_along(self._item, f"item of task {self._name}", data)


def _decode_along(decoder: "msgspec.json.Decoder[Any]", what: str, data: Body) -> Any:
    """Data along an annotation: JSON, or bytes as they are."""
    try:
        return msgspec.convert(data, decoder.type) if isinstance(data, bytes) else decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadInput(what, "data", needed=f"such as its function takes ({error})") from None


def _names(data: Body) -> Iterable[str]:
    """The names in data that could not be decoded, as far as it is an object."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return ()
    return found if isinstance(found, dict) else ()


def _context(name: str, function: Callable[..., Any], hints: dict[str, Any]) -> tuple[str, type] | None:
    """Which parameter gets the context; the wrong kind, or a second one, is refused."""
    kinds = {word: _context_kind(hint) for word, hint in hints.items() if word != "return"}
    found = [(word, kind) for word, kind in kinds.items() if kind is not None]
    if not found:
        return None
    is_coroutine = inspect.iscoroutinefunction(function)
    wanted = AsyncContext if is_coroutine else Context
    if len(found) > 1 or found[0][1] is not wanted:
        texts = ", ".join(f"{word}: {kind.__name__}" for word, kind in found)
        which = "async def" if is_coroutine else "def"
        needed = f"one {wanted.__name__}, as its function is made by {which}"
        raise BadInput(f"context of task {name}", texts, needed=needed)
    return found[0]


def _context_kind(hint: Any) -> type | None:
    """The kind of context that an annotation asks for, also as `Context | None`; None: it asks for none."""
    options = [kind for kind in get_args(hint) if kind is not type(None)] or [hint]
    return options[0] if len(options) == 1 and options[0] in (Context, AsyncContext) else None


def _has_name(task: str, parameter: inspect.Parameter) -> bool:
    """Whether a parameter has arguments of its name: all but `**rest`; one without a name is refused."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
        star = "*" if parameter.kind == parameter.VAR_POSITIONAL else ""
        raise BadInput(
            f"parameter {star}{parameter.name} of task {task}",
            parameter.kind.description,
            needed="a named parameter: arguments travel by name",
        )
    return parameter.kind != parameter.VAR_KEYWORD


def _arguments(
    parameters: list[inspect.Parameter], kinds: list[Any], *, strict: bool
) -> type[msgspec.Struct]:
    """A record type that is made as the function is called: by position, by name, less what has defaults."""
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
    """What writes the arguments of most calls: one record, encoded and decoded as the worker will."""
    encode, decode = msgspec.json.Encoder().encode, decoder.decode

    def quick_write(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        try:
            call = arguments(*args, **kwargs)
            raw = encode(call)
            decode(raw)
            # Most arguments are text and numbers: these are seen without a function call for each.
            plain = True
            for value in args:
                plain = plain and (type(value) in PLAIN or is_plain(value))
            for name in kwargs:
                plain = plain and (type(kwargs[name]) in PLAIN or is_plain(kwargs[name]))
            if len(raw) > DATA_BYTES or not (plain or not changes(call)):
                return None
        except Exception:
            # Whatever it is, `write` meets it too, and says which argument it is about.
            return None
        return raw.decode()

    return quick_write


def _never(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """Leave all calls to `write`."""


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        # Annotations that cannot be resolved say nothing; the values are taken as JSON has them. But
        # a context is known by its name.
        raw = getattr(inspect.unwrap(function), "__annotations__", {})
        named = {word: _CONTEXTS.get(_context_name(str(text))) for word, text in raw.items()}
        return {word: kind for word, kind in named.items() if kind is not None}


def _context_name(text: str) -> str:
    """The last part of a name, of `name | None` and of `Optional[name]`."""
    inner = text.partition("Optional[")[2].rstrip("]") or text
    names = [part.strip() for part in inner.split("|")]
    return next((name for name in names if name != "None"), "").rpartition(".")[2]
