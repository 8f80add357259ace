"""Where the handlers of an executor are: it answers, or writes a dump if it cannot."""

import asyncio
from collections.abc import Callable

from ...queue.stacks import crash_line, dumped_stack
from ..messages import JobStack, ShowStack
from ..shared_files import SharedDump


class HandlerStacks:
    """Asks one executor for the stacks of its handlers."""

    def __init__(self, pid: int, dump: SharedDump, send: Callable[[ShowStack], None]) -> None:
        self._pid, self._send = pid, send
        self._dump: SharedDump | None = dump
        # The answers that are waited for, by the number of the job.
        self._answers: dict[int, asyncio.Future[str]] = {}

    async def find(self, asked: ShowStack, *, thread: int, wait_s: float) -> str:
        """The stack of a job's handler, which a thread has started; "" if it is not known in time."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[asked.number] = answer
        self._send(asked)
        await asyncio.wait([answer], timeout=wait_s / 2)
        # It may be unable to answer.
        dumped = "" if answer.done() else await self.dump(thread, wait_s=wait_s / 2)
        del self._answers[asked.number]
        return answer.result() if answer.done() else dumped

    async def dump(self, thread: int, *, wait_s: float) -> str:
        """The stack of a thread, as a signal finds it; "" if it is not known in time."""
        if self._dump is not None:
            self._dump.ask(self._pid)
            await asyncio.sleep(wait_s)
        return "" if self._dump is None else dumped_stack(self._dump.read(), thread)

    def crash_line(self) -> str:
        """Where a handler has ended the process by a signal such as SIGSEGV; "": that is not known."""
        return "" if self._dump is None else crash_line(self._dump.read())

    def on_answer(self, message: JobStack) -> None:
        """Note its answer."""
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message.stack)

    def close(self) -> None:
        """Close the dump, after the process has ended."""
        if self._dump is not None:
            self._dump.close()
            self._dump = None
