"""Answers of many jobs in several shards: each is put in by itself, and the replies come together."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.errors import HoldfastError
from ..asking import Asking
from ..ticket import Ticket, deliver


class OneAnswer(Ticket):
    """One of the answers. Nobody waits for it alone, so nobody can give it up."""

    __slots__ = ("_heard",)

    def __init__(self, command: c.Command, heard: Callable[[Any], None]) -> None:
        super().__init__(command)
        self._heard = heard

    def answer(self, reply: Any) -> bool:
        """Hand the reply on."""
        self.answered = True
        self._heard(reply)
        return True


class Answering:
    """One `AnswerAll` on its way. `router` takes each answer to its shard, or to where that has moved."""

    def __init__(self, ticket: Ticket, command: c.AnswerAll, router: Asking) -> None:
        self._ticket, self._command, self._router = ticket, command, router
        self._replies: list[Any] = [None] * len(command.answers)
        self._open = len(command.answers)
        self._lock = threading.Lock()

    def go(self) -> None:
        """Put in all answers."""
        held = self._command.held
        for at, answer in enumerate(self._command.answers):
            one = OneAnswer(replace(answer, held=held[at] if held else None), partial(self._hear, at))
            try:
                self._router.submit(one)
            except HoldfastError as error:
                one.answer(error)

    def _hear(self, at: int, reply: Any) -> None:
        with self._lock:
            self._replies[at] = reply
            self._open -= 1
            if self._open:
                return
        if self._ticket.answer(self._replies):
            deliver([self._ticket], self._router.give_back)
