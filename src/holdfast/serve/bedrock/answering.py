"""FinishJob, RetryJob and FailJob: the outcome of a job that was claimed through the port.

The protocol's order of checks: the job exists ▸ it is running ▸ its parent waits ▸ data ▸ (RetryJob)
priority, time. The rules check the first three; only if a later check fails, these are checked here before.
"""

from typing import Any

from ...core import commands as c
from ...core import family, rules
from ...core.errors import HoldfastError
from ...core.job import Code, Job
from . import parameters as p
from . import refusals
from .port import Port


async def finish(port: Port, headers: p.Headers) -> None:
    """FinishJob."""
    number, data = p.job_id(headers), _data(headers)
    if data is not None:
        _check_mocked(await _standing(port, number, "finish"), data)
    fields: dict[str, Any] = {"ignore_repeat": _forgets_repeat(headers, data)}
    await _say(port, number, Code.OK, data, fields)


async def retry(port: Port, headers: p.Headers) -> None:
    """RetryJob: back in the queue, by its repeat, at `nextRun`, or after `delay`."""
    number, data = p.job_id(headers), _data(headers)
    fields: dict[str, Any] = {"counts": False, "ignore_repeat": _forgets_repeat(headers, data)}
    fields["task"] = p.job_name(headers, needed=False) or None
    late, late_time = None, None
    try:
        fields["priority"] = p.priority(headers)
    except p.PortRefusal as refusal:
        late = refusal
    try:
        fields["run_at"] = p.moment(headers, "nextRun") or 0
        fields["delay_ms"] = 0 if fields["run_at"] else p.delay_ms(headers)
    except p.PortRefusal as refusal:
        late_time = refusal
        fields["delay_ms"] = 0
    if data is not None or late or late_time:
        job = await _standing(port, number, "retry")
        _check_mocked(job, data)
        # A repeat takes precedence over a given time, valid or not.
        repeats = bool(job.repeat) and not fields["ignore_repeat"]
        if late or (late_time and not repeats):
            raise late or late_time or AssertionError
    await _say(port, number, Code.RETRY, data, fields)


async def fail(port: Port, headers: p.Headers) -> None:
    """FailJob."""
    number, data = p.job_id(headers), _data(headers)
    await _say(port, number, Code.FAILED, data, {})


def _data(headers: p.Headers) -> p.DataHeader | None:
    """`data`; None if it is empty."""
    return p.data(headers) if headers.get("data") else None


def _forgets_repeat(headers: p.Headers, data: p.DataHeader | None) -> bool:
    return p.flag(headers, "ignoreRepeat") or (data is not None and data.delete)


async def _say(
    port: Port, number: int, code: Code, data: p.DataHeader | None, fields: dict[str, Any]
) -> None:
    if not p.may_exist(number):
        raise p.PortRefusal(refusals.NO_JOB)
    text = data.text if data is not None else None
    try:
        await port.ask(c.Answer(hold=port.hold(number), code=code, data=text, **fields))
    except HoldfastError as error:
        told = refusals.failing if code == Code.FAILED else refusals.answering
        raise told(error) or error from None


async def _standing(port: Port, number: int, verb: str) -> Job:
    """The job, if the rules allow an answer; raises their refusal otherwise."""
    jobs = (await port.load(number)).jobs
    job = jobs[number]
    try:
        rules.check_hold(job, port.hold(number), verb)
        family.check_child_may_end(job, jobs.get(job.parent_id), verb)
    except HoldfastError as error:
        raise refusals.answering(error) or error from None
    return job


def _check_mocked(job: Job, data: p.DataHeader | None) -> None:
    if data is not None and data.mock != job.mock:
        raise p.PortRefusal(refusals.MOCK_MISMATCH)
