"""The stored form, byte by byte: what is written today must be read by every later version.

If one of these fails, the code is wrong and not the test: somebody has data of this form.
"""

import msgspec

from holdfast.core import ids
from holdfast.core.commands import NewJob
from holdfast.core.defaults import Defaults
from holdfast.core.job import Backoff, Children, Code, Job, JobProgress, Outcome, Place, State
from holdfast.core.kinds import name_of
from holdfast.core.limits import Domain, Limit, TaskLoad
from holdfast.core.notes import JobLog, LogLine, StepResult
from holdfast.core.schedule import Schedule
from holdfast.core.unique import Unique
from holdfast.engine.commands.schedules import Kept
from holdfast.engine.records import Patterns
from holdfast.engine.sysid import Sysid

FULL = Job(
    id=1,
    task="t",
    tenant="n",
    place=Place.RUNNING,
    rank=2,
    version=3,
    priority=4,
    created_at=5,
    run_at=6,
    scheduled_at=7,
    started_at=8,
    finished_at=9,
    expires_at=10,
    owner=11,
    lease_until=12,
    claim=13,
    attempts=14,
    max_attempts=15,
    losses=16,
    crowd_limit=4,
    max_losses=17,
    backoff=Backoff(first_ms=18, most_ms=19, jitter=0.5),
    timeout_ms=20,
    retry_after="+1 DAY",
    lapsed=True,
    repeat="DAILY",
    again_at=21,
    unique=b"\x00u",
    unique_for_ms=22,
    domain=b"\x00d",
    schedule="s",
    then='{"task":"x"}',
    into="i",
    then_id=33,
    followed=True,
    on_failure='{"task":"y"}',
    parent_id=23,
    parent_claim=24,
    children=Children(pending=25, failed=26, kept=27),
    wait_for_failed=True,
    given=("attempts", "timeout"),
    mock=True,
    strict=True,
    cancel_requested=True,
    ended=State.FAILED,
    reason="r",
    progress=JobProgress(fraction=0.5, note="p"),
    outcome=Outcome(code=Code.OK, at=28, exit_code=200, error="e", traceback="b"),
    errors=(Outcome(code=Code.ERROR, at=29),),
    size=30,
    has_result=True,
    steps=31,
    log_lines=32,
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)
FULL_TEXT = (
    '{"id":1,"place":4,"rank":2,"version":3,"owner":11,"lease_until":12,"claim":13,"started_at":8,'
    '"task":"t","tenant":"n","priority":4,"created_at":5,"run_at":6,"scheduled_at":7,"finished_at":9,"expires_at":10,'
    '"attempts":14,"max_attempts":15,"losses":16,"crowd_limit":4,"max_losses":17,'
    '"backoff":{"first_ms":18,"most_ms":19,"jitter":0.5},"timeout_ms":20,"retry_after":"+1 DAY",'
    '"lapsed":true,'
    '"repeat":"DAILY","again_at":21,"unique":"AHU=","unique_for_ms":22,"domain":"AGQ=","schedule":"s",'
    '"then":"{\\"task\\":\\"x\\"}","into":"i","then_id":33,"followed":true,"on_failure":"{\\"task\\":\\"y\\"}","parent_id":23,"parent_claim":24,'
    '"children":{"pending":25,"failed":26,"kept":27},"wait_for_failed":true,'
    '"given":["attempts","timeout"],"mock":true,"strict":true,'
    '"cancel_requested":true,"ended":"FAILED","reason":"r",'
    '"progress":{"fraction":0.5,"note":"p"},'
    '"outcome":{"code":"ok","at":28,"exit_code":200,"error":"e","traceback":"b"},'
    '"errors":[{"code":"error","at":29}],"size":30,"has_result":true,"steps":31,"log_lines":32,'
    '"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
)
# What is not written means this, for ever.
DEFAULTS = (
    '{"id":1,"task":"t","tenant":"","place":1,"rank":0,"version":1,"priority":500,"created_at":0,"run_at":0,'
    '"scheduled_at":0,"started_at":0,"finished_at":0,"expires_at":0,"owner":0,"lease_until":0,"claim":0,'
    '"attempts":0,"max_attempts":10,"losses":0,"crowd_limit":0,"max_losses":10,'
    '"backoff":{"first_ms":1000,"most_ms":3600000,"jitter":0.2},"timeout_ms":0,"retry_after":0,'
    '"lapsed":false,"repeat":"","again_at":0,"unique":null,"unique_for_ms":0,"domain":null,"schedule":"",'
    '"then":"","into":"","then_id":0,"followed":false,"on_failure":"","parent_id":0,"parent_claim":0,"children":{"pending":0,"failed":0,"kept":0},'
    '"wait_for_failed":false,"given":[],"mock":false,"strict":false,"cancel_requested":false,'
    '"ended":null,"reason":"","progress":null,"outcome":null,"errors":[],"size":0,"has_result":false,"steps":0,"log_lines":0,"traceparent":""}'
)


def test_a_job_is_written_in_this_form():
    assert msgspec.json.encode(FULL).decode() == FULL_TEXT
    assert msgspec.json.decode(FULL_TEXT, type=Job) == FULL


def test_what_is_not_written_means_what_it_always_meant():
    assert msgspec.json.encode(Job(id=1, task="t")) == b'{"id":1,"task":"t"}'
    assert msgspec.json.decode(DEFAULTS, type=Job) == Job(id=1, task="t")
    assert msgspec.json.decode('{"task":"t","max_attempts":10,"max_losses":10}', type=NewJob) == NewJob(
        task="t"
    )


def test_the_defaults_of_a_task_are_written_in_this_form():
    full = Defaults(
        max_attempts=1,
        max_losses=2,
        backoff=Backoff(first_ms=3),
        timeout_ms=4,
        retry_after="+1 DAY",
        expires_in_ms=5,
        repeat="DAILY",
        then='{"task":"x"}',
        into="i",
        wait_for_failed=True,
    )
    text = (
        '{"max_attempts":1,"max_losses":2,"backoff":{"first_ms":3},"timeout_ms":4,"retry_after":"+1 DAY",'
        '"expires_in_ms":5,"repeat":"DAILY","then":"{\\"task\\":\\"x\\"}","into":"i","wait_for_failed":true}'
    )
    assert msgspec.json.encode(full).decode() == text
    assert msgspec.json.decode(text, type=Defaults) == full
    assert msgspec.json.encode(Defaults()) == b"{}"


def test_a_job_of_a_later_version_can_still_be_read():
    """Fields that this version does not know are passed over."""
    assert msgspec.json.decode('{"id":1,"task":"t","colour":"red"}', type=Job) == Job(id=1, task="t")


def test_the_numbers_of_places_never_change():
    assert [(place.name, place.value) for place in Place] == [
        ("SCHEDULED", 1),
        ("READY", 2),
        ("HELD", 3),
        ("RUNNING", 4),
        ("PAUSED", 5),
        ("DONE", 6),
    ]


def test_an_id_has_this_layout():
    """41 bits of ms since 2025, 11 of sysid, 5 of sequence, 6 of slot."""
    job_id = ids.pack(ids.tick_at(1_735_689_600_000 + 5) + 3, 7, 9)

    assert job_id == 5 << 22 | 7 << 11 | 3 << 6 | 9
    assert ids.unpack(job_id) == ids.Parts(1_735_689_600_005, 7, 3, 9)


def test_a_slot_follows_from_its_names_in_this_way():
    """Shards are found by it, so it is for ever."""
    assert ids.slot_of("", b"example.org") == 9
    assert ids.slot_of("acme", "resize", b"key") == 13


def test_small_records_are_written_in_these_forms():
    texts = [
        msgspec.json.encode(record).decode()
        for record in (
            Domain(
                tenant="n",
                name=b"d",
                tat_us=3,
                running=4,
                loads={"t": TaskLoad(ready=5, held=6, last=(8, 9))},
                due_ms=7,
            ),
            Limit(rate=1.5, burst=2, concurrency=3),
            Patterns(limits=((b"*", Limit(rate=1.0)),)),
            Unique(tenant="n", task="t", key=b"k", job_id=1, until_ms=2),
            Sysid(token="x", until_ms=1, ids_until_ms=2),
            Kept(schedule=Schedule(name="s", cron="0 0 * * *"), job=NewJob(task="t"), raw=b"r"),
            StepResult(
                kind="call", name="s", result="[1]", at=4, claim=5, took_ms=6, until=7, ended=8, jobs=(9,)
            ),
            JobLog(lines=(LogLine(at=1, claim=2, text="l"),), cut=3),
        )
    ]

    assert texts == [
        '{"tenant":"n","name":"ZA==","tat_us":3,"running":4,"loads":{"t":{"ready":5,"held":6,"last":[8,9]}},"due_ms":7}',
        '{"rate":1.5,"burst":2,"concurrency":3}',
        '{"limits":[["Kg==",{"rate":1.0}]]}',
        '{"tenant":"n","task":"t","key":"aw==","job_id":1,"until_ms":2}',
        '{"token":"x","until_ms":1,"ids_until_ms":2}',
        '{"schedule":{"name":"s","cron":"0 0 * * *"},"job":{"task":"t"},"raw":"cg=="}',
        '{"kind":"call","name":"s","result":"[1]","at":4,"claim":5,"took_ms":6,"until":7,"ended":8,"jobs":[9]}',
        '{"lines":[{"at":1,"claim":2,"text":"l"}],"cut":3}',
    ]
    assert name_of("n", b"d", None) == '["n","ZA==",null]'
