"""The names that `import holdfast` gives: all there, and fetched when they are asked for."""

import inspect
from typing import get_type_hints

import pytest

import holdfast
import holdfast.indexed
from holdfast.work import worker

# For annotations.
ALIASES = {"Duration", "JobRef", "Key", "Moment", "PreparedCall", "TaskRef"}


@pytest.mark.parametrize("name", holdfast.__all__)
def test_a_public_name_is_there(name):
    """Also under its own name where it comes from, but for the room that can be called, and aliases."""
    found = getattr(holdfast, name)

    assert name in {"work", *ALIASES} or getattr(found, "__name__", name) == name
    assert name in dir(holdfast)


@pytest.mark.parametrize("name", holdfast.indexed.__all__)
def test_a_public_name_of_indexed_consumers_is_there(name):
    """Errors too: `Backwards` and `Trimmed` are the same by either name."""
    found = getattr(holdfast.indexed, name)

    if isinstance(found, type) and issubclass(found, holdfast.HoldfastError) and name != "AlreadyStarted":
        assert found is getattr(holdfast, name)


def test_the_errors_of_indexed_consumers_can_be_caught_by_name():
    """Each says which consumer or log it is about."""
    assert str(holdfast.indexed.Backwards("c", 4, found="at 5")).startswith("cannot move consumer c to 4")
    assert str(holdfast.indexed.Trimmed("l", 4, trimmed=5)).startswith("index 4 of the log l is gone")


def test_work_has_the_signature_and_the_text_of_its_function():
    """It is a module that can be called: `help` and editors show what to give it."""
    assert inspect.signature(holdfast.work) == inspect.signature(worker.work)
    assert inspect.getdoc(holdfast.work) == inspect.getdoc(worker.work)


def test_a_name_that_is_not_public_is_refused_as_every_module_does():
    with pytest.raises(AttributeError, match="has no attribute 'enqueue'"):
        holdfast.enqueue  # type: ignore[attr-defined]  # noqa: B018


def test_what_methods_take_and_return_can_be_annotated():
    """Where annotations are evaluated too, and also inside functions that are tasks."""
    options = inspect.signature(holdfast.Queue.add).parameters["options"]
    assert options.annotation.__args__[0] is holdfast.JobOptions

    def call(delay: holdfast.Duration | None, of: holdfast.JobRef) -> holdfast.PreparedCall[bytes]:
        raise NotImplementedError

    found = get_type_hints(call)
    assert found["return"].__origin__ is type(holdfast.connect("memory://").call("task"))
    assert get_type_hints(holdfast.Handle.result)["wait"] == found["delay"]


def test_all_of_them_can_be_imported_at_once():
    names: dict[str, object] = {}
    exec("from holdfast import *", names)

    assert set(holdfast.__all__) <= names.keys()
