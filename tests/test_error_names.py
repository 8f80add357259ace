"""The names that tracebacks show: those by which programs import errors and catch them."""

import importlib
import pickle

import pytest

import holdfast
from holdfast.queue.replay import FunctionChanged
from holdfast.store.common.outage import Unreachable
from tests.house.source import PACKAGE

RAISED = (holdfast.HoldfastError, holdfast.Failed, holdfast.Retry, holdfast.SoftTimeout, holdfast.StepFailed)


def below(kind):
    """A class and all its subclasses."""
    return [kind, *(one for sub in kind.__subclasses__() for one in below(sub))]


def test_every_error_has_a_name_that_can_be_caught():
    """Those that are internal have that of the public class that they are."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if not {"contrib", "__main__", "children"} & {*parts}:
            importlib.import_module(".".join(parts).removesuffix(".__init__"))

    shown = {one: (one.__module__, one.__qualname__) for kind in RAISED for one in below(kind)}
    ours = {one: name for one, name in shown.items() if name[0].partition(".")[0] == "holdfast"}
    assert len(ours) > 30
    for kind, (module, name) in ours.items():
        assert module in ("holdfast", "holdfast.indexed"), kind
        assert issubclass(kind, getattr(importlib.import_module(module), name)), kind
    assert (ours[Unreachable], ours[FunctionChanged]) == (("holdfast", "Unavailable"), ("holdfast", "Failed"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (holdfast.BadInput("option", "prio", needed="priority"), holdfast.BadInput),
        (holdfast.NotFound("job", 5), holdfast.NotFound),
        (holdfast.Moved("jobs.db", token="t"), holdfast.Moved),
        (Unreachable("gone"), holdfast.Unavailable),
    ],
)
def test_an_error_can_be_pickled(error, kind):
    """For the processes of others; an internal one arrives as the public class."""
    back = pickle.loads(pickle.dumps(error))

    assert type(back) is kind
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_an_error_of_a_program_keeps_its_own_name():
    """Although it is one of ours."""

    class OurOwn(holdfast.Refused):
        """An error of an application."""

    assert (OurOwn.__module__, OurOwn.__qualname__.rpartition(".")[2]) == (__name__, "OurOwn")
