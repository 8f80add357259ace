"""Tasks: functions whose calls can be queued. Arguments travel by name, as one JSON object."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from ..core.checks import check_name, check_new
from ..core.commands import NewJob
from ..core.errors import BadInput
from ..core.job import Body, Job
from .context import AsyncContext, Context
from .handling import handling
from .options import JobOptions, encode, key_bytes, merge, new_job

if TYPE_CHECKING:
    from .claimed import Holding
    from .handle import Handle

_CONTEXTS = {kind.__name__: kind for kind in (Context, AsyncContext)}
P = ParamSpec("P")
R = TypeVar("R")


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
        self.extras = False
        fields: list[Any] = []
        for parameter in kept:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                star = "*" if parameter.kind == parameter.VAR_POSITIONAL else ""
                needed = "a named parameter: arguments travel by name"
                raise BadInput(
                    f"parameter {star}{parameter.name} of task {name}",
                    parameter.kind.description,
                    needed=needed,
                )
            if parameter.kind == parameter.VAR_KEYWORD:
                self.extras = True
                continue
            hint = hints.get(parameter.name, Any)
            required = parameter.default is parameter.empty
            fields.append((parameter.name, hint) if required else (parameter.name, hint, msgspec.UNSET))
        self.whole = len(fields) == 1 and fields[0][1] is Job
        self.names = [field[0] for field in fields]
        self._one = fields[0][1] if len(fields) == 1 else None
        self._decoder = None if self.whole else _decoder(fields)

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
        """The arguments of a call as data; what the function would not take is refused here."""
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
        data = encode(f"arguments of task {self._name}", named)
        self.read(data)
        return data

    def read(self, data: Body) -> dict[str, Any]:
        """Data as the arguments of a call; what is not an object goes to the only parameter."""
        if isinstance(data, bytes) or (not data.lstrip().startswith("{") and len(self.names) == 1):
            return self._read_whole(data)
        assert self._decoder is not None
        try:
            values = self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise BadInput(
                f"arguments of task {self._name}", "data", needed=f"such as its function takes ({error})"
            ) from None
        named = {name: value for name in self.names if (value := getattr(values, name)) is not msgspec.UNSET}
        if self.extras:
            named = msgspec.json.decode(data) | named
        return named

    def read_item(self, data: Body) -> Any:
        """Data as one item of a batch."""
        raise AssertionError("only a batch has items")

    def _read_whole(self, data: Body) -> dict[str, Any]:
        if len(self.names) != 1:
            found = "bytes" if isinstance(data, bytes) else "not an object"
            raise BadInput(
                f"data of task {self._name}", found, needed=f"an object with {', '.join(self.names)}"
            )
        if isinstance(data, bytes):
            return {self.names[0]: data}
        kind = Any if self._one is None else self._one
        try:
            return {self.names[0]: msgspec.json.decode(data, type=kind)}
        except msgspec.DecodeError as error:
            raise BadInput(
                f"data of task {self._name}", "data", needed=f"such as its function takes ({error})"
            ) from None


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
        self._takes_bytes = kind in (Any, bytes)

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Body:
        """An item as data."""
        if len(args) != 1 or kwargs:
            found = f"{len(args)} and {', '.join(kwargs) or 'no others'}"
            raise BadInput(f"arguments of batch task {self._name}", found, needed="one item")
        data = encode(f"item of task {self._name}", args[0])
        self.read_item(data)
        return data

    def read(self, data: Body) -> dict[str, Any]:
        """A batch of one."""
        return {self.names[0]: [self.read_item(data)]}

    def read_item(self, data: Body) -> Any:
        """Data as one item of a batch."""
        if isinstance(data, bytes) and self._takes_bytes:
            return data
        try:
            return self._item.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(
                f"item of task {self._name}", "data", needed=f"such as its function takes ({error})"
            ) from None


def _context(name: str, function: Callable[..., Any], hints: dict[str, Any]) -> tuple[str, type] | None:
    """Which parameter gets the context; the wrong kind, or a second one, is refused."""
    found = [(word, hint) for word, hint in hints.items() if hint in (Context, AsyncContext)]
    found = [(word, hint) for word, hint in found if word != "return"]
    if not found:
        return None
    wanted = AsyncContext if inspect.iscoroutinefunction(function) else Context
    if len(found) > 1 or found[0][1] is not wanted:
        texts = ", ".join(f"{word}: {hint.__name__}" for word, hint in found)
        raise BadInput(f"context of task {name}", texts, needed=f"one, a {wanted.__name__}")
    return found[0]


def _decoder(fields: list[Any]) -> "msgspec.json.Decoder[Any]":
    kinds = [
        (name, kind | msgspec.UnsetType, *rest) if rest else (name, kind) for name, kind, *rest in fields
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Arguments", kinds, kw_only=True))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        # Annotations that cannot be resolved say nothing; the values are taken as JSON has them. But
        # a context is known by its name.
        raw = getattr(inspect.unwrap(function), "__annotations__", {})
        named = {word: _CONTEXTS.get(str(text).rpartition(".")[2]) for word, text in raw.items()}
        return {word: kind for word, kind in named.items() if kind is not None}


class Using(Generic[P, R]):
    """A task with options for the calls that follow."""

    def __init__(self, task: "Task[P, R]", options: JobOptions) -> None:
        self._task, self._options = task, options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A prepared call, for `add_many` and `then`."""
        return self._task.prepare(args, kwargs, self._options)

    def add(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Add a job; returns after the commit."""
        return self._task.adder([self.call(*args, **kwargs)])[0]


class Task(Generic[P, R]):
    """A function that can be called, and whose calls can be queued.

    `function` is the function itself: where a context is injected, or a batch taken, its arguments are
    not those of `add`.
    """

    def __init__(
        self,
        function: Callable[..., R],
        name: str,
        options: JobOptions,
        *,
        tenant: str,
        adder: Callable[[Iterable[NewJob]], "list[Handle[Any]]"],
        handled: dict[str, Any] | None = None,
    ) -> None:
        check_name("task", name)
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.options = options
        self.adder = adder
        self.handling = handling(function, name, handled or {}, options)
        self.signature = BatchSignature(name, function) if self.handling.batch else Signature(name, function)
        self._tenant = tenant
        # A task's options are refused where they are written, not at the first call.
        check_new(new_job(name, "{}", _without_domain(options), tenant=tenant))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def using(self, **options: Unpack[JobOptions]) -> Using[P, R]:
        """The same task with other options: `resize.using(delay="30s").add("a.png")`."""
        return Using(self, merge(self.options, options))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A prepared call, for `add_many` and `then`."""
        return self.prepare(args, kwargs, self.options)

    def add(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Add a job; returns after the commit."""
        return self.adder([self.call(*args, **kwargs)])[0]

    def add_many(self, calls: Iterable[tuple[Any, ...] | dict[str, Any]]) -> "list[Handle[R]]":
        """Add a job for each tuple, or dict, of arguments."""
        return self.adder(self._spread(arguments) for arguments in calls)

    def _spread(self, arguments: tuple[Any, ...] | dict[str, Any]) -> NewJob:
        if isinstance(arguments, dict):
            return self.prepare((), arguments, self.options)
        if isinstance(arguments, tuple):
            return self.prepare(arguments, {}, self.options)
        raise BadInput(f"arguments of task {self.name}", arguments, needed="a tuple or a dict")

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: JobOptions) -> NewJob:
        """The job that a call becomes."""
        if self.signature.whole:
            data = encode("data", args[0] if args else kwargs)
        else:
            data = self.signature.write(args, kwargs)
        return new_job(self.name, data, _with_domain(options, args, kwargs), tenant=self._tenant)

    def options_for(self, data: Any, options: JobOptions) -> JobOptions:
        """The task's options under those of a call by name, with the domain that the data has."""
        named = data if isinstance(data, dict) else {}
        return _with_domain(merge(self.options, options), (), named)

    def run(self, job: "Holding") -> Any:
        """Call the function with a claimed job's data; its result, or what it raises."""
        signature = self.signature
        arguments = {signature.names[0]: job} if signature.whole else signature.read(job.body)
        if signature.context is not None:
            name, kind = signature.context
            arguments[name] = kind(job, job._queue)
        return self.function(**arguments)


def _with_domain(options: JobOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobOptions:
    domain = options.get("domain")
    if not callable(domain):
        return options
    chosen = domain(*args, **kwargs)
    options = _without_domain(options)
    if chosen is not None:
        options["domain"] = key_bytes("domain", chosen)
    return options


def _without_domain(options: JobOptions) -> JobOptions:
    rest = JobOptions(**options)
    if callable(rest.get("domain")):
        del rest["domain"]
    return rest
