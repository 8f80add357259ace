"""Tasks: functions whose calls can be queued. Arguments are stored by name, as one JSON object.

What all jobs of a task have in common is prepared once: when the task is declared, its signature is compiled
and its options become a template. `add` fills in the data:

    arguments ──signature.quick_write──▶ data ──▶ replace(template, data=…) ──▶ Add ──▶ the store
                     └─ None: the slower `write` does it, or names the wrong argument
"""

import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import msgspec
from msgspec.structs import replace

from ..core.bounds import DOMAIN_BYTES
from ..core.checks import check_key, check_name, check_new
from ..core.commands import NewJob
from ..core.errors import BadInput
from ..core.family import NO_ARGUMENTS
from ..core.job import Body, Job
from .answers import Failed
from .definition import definition_of, read_handling, readable_type, returned_type
from .encoding import decode, from_json_type
from .options import (
    METHODS,
    NO_CONNECTION,
    Duration,
    JobOptions,
    JobRef,
    defaults_of,
    given_names,
    given_over,
    job_id,
    key_bytes,
    merge,
    new_job,
)
from .signature import BatchSignature, Signature

if TYPE_CHECKING:
    from .claimed import Holding
    from .context import AnyContext
    from .options import PreparedCall

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
# The arguments of one call, for `add_many`.
Arguments = tuple[Any, ...] | dict[str, Any]


class BaseHandle(msgspec.Struct, Generic[R_co], frozen=True, eq=False, gc=False):
    """What handles of both kinds of queues are: the queue, and the `id` of a job that was added.

    `is_new` is False if a job with its unique key was there before; that is the job then.
    """

    _queue: Any
    id: int
    # Whether this add made the job; False: it was there before.
    is_new: bool = True
    # The task that the job must have; empty: it was added here.
    _task: str = ""

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __deepcopy__(self, memo: Any) -> Self:
        # As Django does with what a class of tests has made: the job is the same, and so is the queue.
        return self


class Handle(BaseHandle[R_co], frozen=True):
    """A job that was added: its `id`, and methods that query the queue."""

    def result(self, wait: Duration | None = None) -> R_co:
        """What the task returned; raises `JobFailed`, or `Timeout` when it has not ended within `wait`."""
        value: R_co = self._queue.result(self, wait=wait)
        return value

    def get(self) -> Job:
        """The job's record."""
        job: Job = self._queue.get(self)
        return job

    def why(self) -> str:
        """Why it is not running."""
        if self._task:
            self.get()
        reason: str = self._queue.why(self)
        return reason

    def cancel(self, *, force: bool = False) -> Job:
        """Cancel the job; see `Queue.cancel`."""
        if self._task:
            self.get()
        job: Job = self._queue.cancel(self, force=force)
        return job


class TaskWithOptions(Generic[P, R_co]):
    """A task with options for its calls. The options are read once; keep it for many calls."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Type checkers find such names by themselves; at run time the error has a hint.
            hint = f": here it is {METHODS[name]}" if name in METHODS else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self
            )

    def __init__(
        self,
        queue: Any,
        name: str,
        signature: Signature,
        options: JobOptions,
        given: JobOptions,
        connection: Any = None,
    ) -> None:
        self._queue = queue
        # Jobs are added inside the transaction of the caller's that is open on it.
        self._connection = connection
        self.name = name
        self.signature = signature
        domain = options.get("domain")
        # The function that computes the domain from the arguments, if there is one.
        self._domain = domain if callable(domain) else None
        fixed = JobOptions(**options)
        if self._domain is not None:
            del fixed["domain"]
        # The job without its data.
        self._template = new_job(name, NO_ARGUMENTS, fixed, tenant=queue.tenant, given=given)
        # At the first `add`: a prepared call may get further options, from `add_many`.
        self._is_checked = False

    @overload
    def call(
        self: "TaskWithOptions[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs
    ) -> "PreparedCall[T]": ...

    @overload
    def call(self, *args: P.args, **kwargs: P.kwargs) -> "PreparedCall[R_co]": ...

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "PreparedCall[Any]":
        """A prepared call, for `add_many`, `then` and `ctx.gather`."""
        if self._connection is not None:
            raise BadInput("connection", "given", needed=NO_CONNECTION)
        return self._new(args, kwargs, checks=False)  # type: ignore[return-value]

    @overload
    def add(
        self: "TaskWithOptions[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    def add(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    def add(self, *args: P.args, **kwargs: P.kwargs) -> Handle[Any]:
        """Add a job; returns after the commit."""
        handle: Handle[Any] = self._queue._add_one(self._new(args, kwargs), self._connection)
        return handle

    @overload
    def add_many(
        self: "TaskWithOptions[P, Coroutine[Any, Any, T]]", calls: Iterable[Arguments]
    ) -> list[Handle[T]]: ...

    @overload
    def add_many(self, calls: Iterable[Arguments]) -> list[Handle[R_co]]: ...

    def add_many(self, calls: Iterable[Arguments]) -> list[Handle[Any]]:
        """Add a job for each tuple or dict of arguments."""
        handles: list[Handle[Any]] = self._queue._add_each(self._each(calls), self._connection)
        return handles

    def call_by_name(self, data: Any, *, complete: bool) -> NewJob:
        """A prepared call with this data; unless `complete`, arguments may be missing."""
        body = self.write_by_name(data, complete=complete)
        if self._domain is None:
            return replace(self._template, data=body)
        is_item = isinstance(self.signature, BatchSignature) or not isinstance(data, dict)
        if data is not None and is_item:
            return self._with_domain(body, (data,), {})
        named = data or {}
        # A domain that is computed from the arguments needs all of them.
        lacks_some = self.signature.missing(named)
        return replace(self._template, data=body) if lacks_some else self._with_domain(body, (), named)

    def write_by_name(self, data: Any, *, complete: bool = True) -> Body:
        """The data of a call by name, checked against the signature."""
        body: Body | None = self.signature.quick_write((), data) if type(data) is dict else None
        if body is None:
            body = NO_ARGUMENTS if data is None else self.signature.encode(data)
            if complete:
                self.signature.decode(body)
        return body

    @property
    def has_domain_function(self) -> bool:
        """Whether a job's domain is computed from its arguments."""
        return self._domain is not None

    def _each(self, calls: Iterable[Any]) -> Iterator[NewJob | Body]:
        """Yield a job for each tuple or dict of arguments, or just its data if it is like the one before."""
        is_first = True
        for arguments in calls:
            if isinstance(arguments, tuple):
                args, kwargs = arguments, {}
            elif isinstance(arguments, dict):
                args, kwargs = (), arguments
            else:
                raise BadInput(f"arguments of task {self.name}", arguments, needed="a tuple or a dict")
            if is_first or self._domain is not None:
                is_first = False
                yield self._new(args, kwargs)
            else:
                data = self.signature.quick_write(args, kwargs) or self.signature.write(args, kwargs)
                if self.signature.has_exact:
                    self.signature.check_exact(args, kwargs, data)
                yield data

    def _new(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, checks: bool = True) -> NewJob:
        """The `NewJob` of a call; unless `checks`, its options are checked when it is added."""
        data = self.signature.quick_write(args, kwargs) or self.signature.write(args, kwargs)
        if self.signature.has_exact:
            self.signature.check_exact(args, kwargs, data)
        if self._domain is None:
            new = replace(self._template, data=data)
        else:
            new = self._with_domain(data, args, kwargs)
        if checks and not self._is_checked:
            check_new(new)
            self._is_checked = True
        if checks and (new.then is not None or new.on_failure is not None):
            # Tasks may have been declared since the last one was added.
            self._queue._check_followers(new)
        return new

    def _with_domain(self, data: Body, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        assert self._domain is not None
        found = self._domain(*args, **kwargs)
        if found is None:
            return replace(self._template, data=data)
        domain = key_bytes("domain", found)
        check_key("domain", domain, DOMAIN_BYTES)
        return replace(self._template, data=data, domain=domain)


class Task(TaskWithOptions[P, R_co]):
    """A function that can be called, and whose calls can be queued.

    `function` is the function itself. If it takes a context or a batch, its arguments differ from those of
    `add`.
    """

    def __init__(
        self,
        queue: Any,
        function: Callable[..., Any],
        name: str,
        options: JobOptions,
        handled: dict[str, Any],
    ) -> None:
        check_name("task", name)
        functools.update_wrapper(self, function)
        self.definition = definition_of(function)
        self.function = function
        self.options = options
        self.handling = read_handling(function, name, handled, options)
        kind = BatchSignature if self.handling.batch else Signature
        provided = queue.hooks.kinds if queue.hooks is not None else ()
        super().__init__(queue, name, kind(name, function, provided), options, {})
        # A task's options are checked at its declaration, not at the first call.
        check_new(self._template)
        self._is_checked = True
        self.defaults = defaults_of(replace(self._template, given=given_names(options)))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        value: Any = self.function(*args, **kwargs)
        return value  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def using(self, *, connection: Any = None, **options: Unpack[JobOptions]) -> TaskWithOptions[P, R_co]:
        """The same task with other options: `resize.using(delay="30s").add("a.png")`.

        With `connection` it adds jobs inside your own transaction on that connection.
        """
        using: TaskWithOptions[P, R_co] = self._using(TaskWithOptions, options, connection)
        return using

    def _using(self, kind: Any, options: JobOptions, connection: Any) -> Any:
        merged = merge(self.options, options)
        given = given_over(self.options, options, merged)
        return kind(self._queue, self.name, self.signature, merged, given, connection)

    @overload
    def handle(self: "Task[P, Coroutine[Any, Any, T]]", job: JobRef) -> Handle[T]: ...

    @overload
    def handle(self, job: JobRef) -> Handle[R_co]: ...

    def handle(self, job: JobRef) -> Handle[Any]:
        """The handle of a job by its id; its methods raise `NotFound` if the job has another task."""
        return Handle(self._queue, job_id(job), False, self.name)

    @overload
    def add_many(
        self: "Task[P, Coroutine[Any, Any, T]]", calls: Iterable[Arguments], **options: Unpack[JobOptions]
    ) -> list[Handle[T]]: ...

    @overload
    def add_many(self, calls: Iterable[Arguments], **options: Unpack[JobOptions]) -> list[Handle[R_co]]: ...

    def add_many(self, calls: Iterable[Arguments], **options: Unpack[JobOptions]) -> list[Handle[Any]]:
        """Add a job for each tuple or dict of arguments; the options apply to all."""
        using = self.using(**options) if options else self
        handles: list[Handle[Any]] = self._queue._add_each(using._each(calls))
        return handles

    def read_result(self, body: Body | None) -> Any:
        """Decode a result by the return annotation; one that does not fit is the JSON value."""
        if isinstance(body, str):
            # Another version of the function, or a program in another language, may have returned it.
            with suppress(msgspec.DecodeError):
                return self._result_decoder.decode(body)
        return decode(body)

    @functools.cached_property
    def _result_decoder(self) -> "msgspec.json.Decoder[Any]":
        kind = returned_type(self.function)
        if self.handling.batch:
            # The function returns a list with one entry for each job.
            kind = (*get_args(kind), Any)[0]
        return msgspec.json.Decoder(readable_type(kind), dec_hook=from_json_type)

    def provided(self) -> dict[str, Any]:
        """The arguments that `on_start` has provided."""
        wanted = self.signature.provided
        return {word: self._queue.hooks.value(kind) for word, kind in wanted.items()} if wanted else wanted

    def run(self, job: "Holding") -> Any:
        """Call the function with a claimed job's data; returns its result, or raises its error."""
        signature = self.signature
        try:
            arguments = {signature.names[0]: job} if signature.whole else signature.read(job.body)
        except BadInput as error:
            # The next run would find the same data.
            raise Failed(str(error)) from None
        if signature.context is not None:
            name, kind = signature.context
            arguments[name] = kind(job, job._queue)
        return self.function(**arguments, **self.provided())


class Decorator(Protocol):
    """Makes a function a task.

    A context parameter is not an argument of `add`. A type checker knows this only if it is the first one.
    """

    @overload
    def __call__(self, function: "Callable[Concatenate[AnyContext, P], R]", /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class BatchDecorator(Protocol):
    """Makes a function that takes a list a task whose jobs are the items: `add` takes one of them."""

    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /) -> Task[[T], R]: ...

    @overload
    def __call__(self, function: Callable[[list[T]], list[R]], /) -> Task[[T], R]: ...
