"""Errors on their way to another process; `errors.error_of` is the way back."""

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """An error, by the code of its kind and its text."""

    code: str
    text: str


def as_fault(error: BaseException) -> Fault:
    """An error as it is sent."""
    return Fault(getattr(error, "code", "ERROR"), str(error))
