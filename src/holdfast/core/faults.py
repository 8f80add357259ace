"""Errors as they are sent to another process; `errors.error_of` decodes them."""

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """The code and the text of an error."""

    code: str
    text: str


def as_fault(error: BaseException) -> Fault:
    """Encode an error."""
    return Fault(getattr(error, "code", "ERROR"), str(error))
