"""Tasks: functions whose calls can be queued. Arguments travel by name, as one JSON object."""

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from ..core.checks import check_name, check_new
from ..core.commands import NewJob
from ..core.errors import BadInput
from ..core.following import NO_ARGUMENTS
from .answers import Failed
from .definition import definition_of
from .handling import handling
from .options import JobOptions, defaults_of, key_bytes, merge, new_job
from .signature import BatchSignature, Signature

if TYPE_CHECKING:
    from .claimed import Holding
    from .handle import Handle

P = ParamSpec("P")
R = TypeVar("R")


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
        self.definition = definition_of(function)
        self.name = name
        self.function = function
        self.options = options
        self.adder = adder
        self.handling = handling(function, name, handled or {}, options)
        self.signature = BatchSignature(name, function) if self.handling.batch else Signature(name, function)
        self._tenant = tenant
        # A task's options are refused where they are written, not at the first call.
        plain = new_job(name, "{}", _without_domain(options), tenant=tenant)
        check_new(plain)
        self.defaults = defaults_of(plain)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def using(self, **options: Unpack[JobOptions]) -> Using[P, R]:
        """The same task with other options: `resize.using(delay="30s").add("a.png")`."""
        return Using(self, merge({}, options))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A prepared call, for `add_many` and `then`."""
        return self.prepare(args, kwargs, {})

    def add(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Add a job; returns after the commit."""
        return self.adder([self.call(*args, **kwargs)])[0]

    def add_many(
        self, calls: Iterable[tuple[Any, ...] | dict[str, Any]], **options: Unpack[JobOptions]
    ) -> "list[Handle[R]]":
        """Add a job for each tuple, or dict, of arguments; the options are those of each."""
        return self.adder(self._spread(arguments, options) for arguments in calls)

    def _spread(self, arguments: tuple[Any, ...] | dict[str, Any], options: JobOptions) -> NewJob:
        if isinstance(arguments, dict):
            return self.prepare((), arguments, options)
        if isinstance(arguments, tuple):
            return self.prepare(arguments, {}, options)
        raise BadInput(f"arguments of task {self.name}", arguments, needed="a tuple or a dict")

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: JobOptions) -> NewJob:
        """The job that a call becomes; `given` are the options of the call, on top of the task's."""
        if self.signature.whole:
            data = self.signature.encode(args[0] if args else kwargs)
        else:
            data = self.signature.write(args, kwargs)
        options = _with_domain(merge(self.options, given), args, kwargs)
        return new_job(self.name, data, options, tenant=self._tenant, given=given)

    def prepare_by_name(self, data: Any, given: JobOptions) -> NewJob:
        """The job that a call with this data becomes. Missing arguments are refused when it is added."""
        body = NO_ARGUMENTS if data is None else self.signature.encode(data)
        chosen = merge(self.options, given)
        args: tuple[Any, ...] = ()
        named: dict[str, Any] = {}
        if data is None or (isinstance(data, dict) and not self.handling.batch):
            named = data or {}
            if self.signature.missing(named):
                # A domain that is a function of the arguments needs them all.
                chosen = _without_domain(chosen)
        else:
            args = (data,)
        chosen = _with_domain(chosen, args, named)
        return new_job(self.name, body, chosen, tenant=self._tenant, given=given)

    def run(self, job: "Holding") -> Any:
        """Call the function with a claimed job's data; its result, or what it raises."""
        signature = self.signature
        try:
            arguments = {signature.names[0]: job} if signature.whole else signature.read(job.body)
        except BadInput as error:
            # The next run would find the same data.
            raise Failed(str(error)) from None
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
