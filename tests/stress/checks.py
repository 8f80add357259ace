"""The store held against the ledger: what it must show for what was told.

accepted       every job that an `add` returned is there, with its own data, and nobody else's
all or none    of a batch whose `add_many` never returned, all are there or none
one holder     of each claim one start and one accepted answer; a job is handed out again only
               after its claim was answered or its lease had ended
answers stand  what ended by an accepted answer has ended so, with that result
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.job import State
from holdfast.queue.connect import store_maker
from holdfast.store.contract import AnyStore
from tests.model import view as model_view
from tests.model.checks import CHECKS
from tests.model.view import View

from . import ledger

Event = dict[str, Any]
# The time of a batch is that of its beginning. On a server it may then wait for another batch, which ends a
# lease at a later time, and claim that job: by the versions, it came after.
WAITED_MS = 500


def broken(address: Path | str, ledger_path: Path) -> list[str]:
    """Everything that is wrong with a store after its processes have gone: nothing, one hopes."""
    view, told = examined(address)
    events = ledger.read(ledger_path)
    for check in (accepted_jobs_are_there, batches_are_whole, claims_are_alone, answers_stand):
        told += check(view, events)
    return told


def examined(address: Path | str) -> tuple[View, list[str]]:
    """All that a store shows, and what is wrong with it by itself."""
    store = store_maker(str(address))()
    try:
        told, view = sound(store), look(store)
    finally:
        store.close()
    return view, told + [complaint for check in CHECKS for complaint in check(view)]


def sound(store: AnyStore) -> list[str]:
    """What `doctor` says. It tidies up what the killed have left, and has nothing more to say after that."""
    first = store.report().complaints
    told = [text for text in first if "sockets of processes that are gone" not in text]
    return told + store.report().complaints


def look(store: AnyStore) -> View:
    """All that can be seen."""
    return model_view.look(store, ids=set(), tenants=("",))


def accepted_jobs_are_there(view: View, events: list[Event]) -> Iterator[str]:
    """With the data that they were added with, each under a number of its own."""
    gone = {event["id"] for event in events if event["event"] == "gone"}
    owner: dict[int, str] = {}
    for event in of(events, "added"):
        for n, job_id in enumerate(event["ids"]):
            if job_id in owner:
                yield f"job {job_id} was accepted twice: for {owner[job_id]} and for {event['tag']}"
            owner[job_id] = event["tag"]
            data = view.data.get(job_id)
            if data is None and job_id not in gone:
                yield f"job {job_id} of {event['tag']} was accepted and is not there"
            elif data is not None and (found := decoded(data)) and found["tag"] != event["tag"]:
                yield f"job {job_id} of {event['tag']} has the data of {found}"
            elif data is not None and decoded(data)["n"] != n:
                yield f"job {job_id} of {event['tag']} has the data of its neighbour"


def batches_are_whole(view: View, events: list[Event]) -> Iterator[str]:
    """All jobs of an `add_many` or none, also where the process died before it heard; none of nobody."""
    meant = {event["tag"]: event["count"] for event in of(events, "adds")}
    found = Counter(decoded(data)["tag"] for data in view.data.values())
    for tag, count in found.items():
        if count != meant.get(tag):
            yield f"{count} jobs of {tag} are there, of {meant.get(tag)}"


def claims_are_alone(view: View, events: list[Event]) -> Iterator[str]:
    """No job had two holders: versions tell which came first, whatever the clock says."""
    starts: dict[int, dict[int, Event]] = defaultdict(dict)
    answers: dict[tuple[int, int], Event] = {}
    until: dict[tuple[int, int], int] = {}
    for event in of(events, "start"):
        if event["claim"] in starts[event["id"]]:
            yield f"claim {event['claim']} of job {event['id']} was handed out twice"
        starts[event["id"]][event["claim"]] = event
        until[event["id"], event["claim"]] = event["until"]
    for event in of(events, "extended"):
        until[event["id"], event["claim"]] = event["until"]
    for event in of(events, "said"):
        if (event["id"], event["claim"]) in answers:
            yield f"claim {event['claim']} of job {event['id']} was answered twice"
        answers[event["id"], event["claim"]] = event
    silent = unheard(events)
    for job_id, claims in starts.items():
        in_order = [claims[number] for number in sorted(claims)]
        for start, following in pairwise([*in_order, None]):
            assert start is not None
            key = (job_id, start["claim"])
            yield from _ended(start, answers.get(key), following, until[key], doubtful=key in silent)


def _ended(
    start: Event, answer: Event | None, following: Event | None, until: int, *, doubtful: bool
) -> Iterator[str]:
    """Whether a claim had ended, one way or another, before the next one began."""
    job_id, claim = start["id"], start["claim"]
    if answer is not None and answer["version"] <= start["version"]:
        yield f"claim {claim} of job {job_id} was answered before it began"
    if following is None:
        return
    if following["version"] <= start["version"]:
        yield f"claim {following['claim']} of job {job_id} began before claim {claim}"
    if answer is not None:
        if answer["ended"] == State.FINISHED:
            yield f"job {job_id} was FINISHED under claim {claim}, and handed out again"
        if following["version"] <= answer["version"]:
            yield f"claim {claim} of job {job_id} was answered after claim {following['claim']} began"
    elif following["at"] + WAITED_MS < until and not doubtful:
        yield f"job {job_id} was handed out at {following['at']}, and held under claim {claim} until {until}"


def answers_stand(view: View, events: list[Event]) -> Iterator[str]:
    """What an accepted answer has ended is so, and its result is there."""
    jobs = view.live | view.archived
    gone = {event["id"] for event in events if event["event"] == "gone"}
    for event in of(events, "said"):
        job = jobs.get(event["id"])
        if not event["ended"] or job is None or job.id in gone:
            continue
        if str(job.ended) != event["ended"]:
            yield f"job {job.id} ended {event['ended']} under claim {event['claim']}, and is {job.state}"
        if event["ended"] == State.FINISHED and decoded(view.results[job.id]) != event["result"]:
            yield f"job {job.id} has the result {view.results[job.id]!r}, not {event['result']}"


def unheard(events: list[Event]) -> set[tuple[int, int]]:
    """Claims of which nobody knows how the last answer went: its process died in between."""
    said = {(e["id"], e["claim"]) for e in events if e["event"] in ("said", "lost")}
    return {(e["id"], e["claim"]) for e in of(events, "says")} - said


def of(events: list[Event], kind: str) -> list[Event]:
    """The events of one kind."""
    return [event for event in events if event["event"] == kind]


def decoded(body: str | bytes) -> Any:
    """The JSON value of a body."""
    return msgspec.json.decode(body)
