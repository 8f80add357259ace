"""Answers of many jobs in several shards: each is submitted by itself, and the replies are collected."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core.errors import HoldfastError
from ..submitter import Submitter
from ..ticket import Ticket, deliver


class OneAnswer(Ticket):
    """One of the answers. No caller waits for it alone, so it cannot be abandoned."""

    __slots__ = ("_on_reply",)

    def __init__(self, command: c.Command, on_reply: Callable[[Any], None]) -> None:
        super().__init__(command)
        self._on_reply = on_reply

    def answer(self, reply: Any) -> bool:
        """Pass the reply on."""
        self.answered = True
        self._on_reply(reply)
        return True


class ShardedAnswers:
    """One `AnswerAll` command. `router` submits each answer to its shard, or to where that has moved."""

    def __init__(self, ticket: Ticket, command: c.AnswerAll, router: Submitter) -> None:
        self._ticket, self._command, self._router = ticket, command, router
        self._replies: list[Any] = [None] * len(command.answers)
        self._open = len(command.answers)
        self._lock = threading.Lock()

    def go(self) -> None:
        """Submit all answers."""
        held = self._command.held
        for at, answer in enumerate(self._command.answers):
            one = OneAnswer(replace(answer, held=held[at] if held else None), partial(self._on_reply, at))
            try:
                self._router.submit(one)
            except HoldfastError as error:
                one.answer(error)

    def _on_reply(self, at: int, reply: Any) -> None:
        with self._lock:
            self._replies[at] = reply
            self._open -= 1
            if self._open:
                return
        if self._ticket.answer(self._replies):
            deliver([self._ticket], self._router.give_back)
