"""A context for Python handlers: reads requests from descriptor 3, and writes replies to descriptor 4.

A body is the body of a function of `payload`, `data` and `job`; names that `before` defines are its globals.
It uses the standard library only, and nothing of Holdfast, because nothing else may be readable here.
"""

import ast
import base64
import json
import linecache
import os
import sys
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

REQUESTS_FD, REPLIES_FD = 3, 4
PARAMETERS = ("payload", "data", "job")
# The frames of this file come first in a traceback.
OWN_FILE = __file__

LEAST_EXIT_CODE, MOST_EXIT_CODE = 100, 599


class ExitCode:
    """What a body returns to choose how its job ends; no data is one."""

    def __init__(self, code: int, body: Any = None, error: str = "") -> None:
        if type(code) is not int or not LEAST_EXIT_CODE <= code <= MOST_EXIT_CODE:
            raise ValueError(
                f"exit code {code!r}: a number from {LEAST_EXIT_CODE} to {MOST_EXIT_CODE} is needed"
            )
        self.code, self.body, self.error = code, body, str(error)


Scripts = dict[str, Any]
# What `before` and all bodies see as their globals.
names: dict[str, Any] = {"__name__": "handler", "__builtins__": __builtins__, "exitcode": ExitCode}
handlers: dict[str, Scripts] = {}


def remember_lines(text: str, name: str) -> None:
    """Have tracebacks show the lines of a script."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def compile_function(text: str, name: str) -> Callable[..., Any]:
    """A function with this body. Its lines have the numbers that they have in the text."""
    remember_lines(text, name)
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=one, lineno=1, col_offset=0) for one in PARAMETERS],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    statements = ast.parse(text, name).body or [ast.Pass()]
    function = ast.FunctionDef(
        name="handler", args=arguments, body=statements, decorator_list=[], lineno=1, col_offset=0
    )
    if sys.version_info >= (3, 12):
        function.type_params = []
    module = ast.fix_missing_locations(ast.Module(body=[function], type_ignores=[]))
    found: dict[str, Any] = {}
    exec(compile(module, name, "exec"), names, found)
    made: Callable[..., Any] = found["handler"]
    return made


def compile_script(text: str, name: str) -> CodeType | None:
    """A script that runs with the globals of `before`."""
    return compile(text, name, "exec") if text else None


def define(request: Scripts) -> None:
    """Keep the scripts of a handler under its key."""
    handlers[request["handler"]] = {
        "body": compile_function(request["body"], "body"),
        "before_each": compile_script(request["before_each"], "beforeEach"),
        "after_each": compile_script(request["after_each"], "afterEach"),
    }


def run_script(code: CodeType | None) -> None:
    """Run one of the scripts around jobs."""
    if code is not None:
        exec(code, names)


def refuse_constant(name: str) -> None:
    """Take NaN and Infinity for the text that they are: JSON has neither."""
    raise ValueError(name)


def decode(request: Scripts) -> tuple[str | bytes, Any]:
    """The payload of a job as it is, and as the JSON value that it may be."""
    if "base64" in request:
        raw = base64.b64decode(request["base64"])
        return raw, raw
    text: str = request["payload"]
    try:
        return text, json.loads(text, parse_constant=refuse_constant)
    except ValueError:
        return text, text.removesuffix("\n")


def run_job(request: Scripts) -> dict[str, Any]:
    """Call the body for one job; returns its result for the reply."""
    payload, data = decode(request)
    result = handlers[request["handler"]]["body"](payload, data, request["job"])
    fields: dict[str, Any] = {}
    if isinstance(result, ExitCode):
        fields, result = {"exit_code": result.code, "error": result.error}, result.body
    if isinstance(result, bytes | bytearray):
        return {**fields, "base64": base64.b64encode(result).decode()}
    return {**fields, "result": result}


def answer(request: Scripts) -> dict[str, Any]:
    """Do what a request asks for; returns the fields of its reply."""
    verb = request["do"]
    if verb == "run":
        return run_job(request)
    if verb == "before":
        exec(compile(request["text"], "before", "exec"), names)
    elif verb == "define":
        define(request)
    else:
        run_script(handlers[request["handler"]][verb])
    return {}


def describe(error: BaseException) -> dict[str, Any]:
    """The reply for an error, with the frames of the handler only."""
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be read"
    return {
        "exit_code": 500,
        "error": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "traceback": describe_frames(error),
    }


def describe_frames(error: BaseException) -> str:
    """The traceback of an error, from the handler on; empty where Python cannot open what it needs for it."""
    try:
        frames = traceback.TracebackException.from_exception(error)
        while frames.stack and frames.stack[0].filename == OWN_FILE:
            frames.stack.pop(0)
        return "".join(frames.format())
    except Exception:
        return ""


def reply_to(line: bytes) -> bytes:
    """The reply to a request, as a line."""
    request = json.loads(line)
    try:
        fields = answer(request)
        return encode({"number": request["number"], **fields})
    except BaseException as error:
        return encode({"number": request["number"], **describe(error)}, errors="replace")


def encode(reply: dict[str, Any], errors: str = "strict") -> bytes:
    """A reply as a line. What UTF-8 and JSON do not have, such as lone surrogates and NaN, is refused."""
    text = json.dumps(reply, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode(errors=errors) + b"\n"


def write_all(data: bytes) -> None:
    """Write a whole reply."""
    view = memoryview(data)
    while view:
        view = view[os.write(REPLIES_FD, view) :]


def main() -> None:
    """Answer requests until the executor closes its end."""
    with open(REQUESTS_FD, "rb", closefd=False) as requests:
        for line in requests:
            reply = reply_to(line)
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (OSError, ValueError, AttributeError):
                    pass  # closed or replaced by the handler
            write_all(reply)


if __name__ == "__main__":
    main()
