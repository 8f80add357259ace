"""Metrics for Prometheus: right, readable, bounded, and only for those who may read."""

import re
from pathlib import Path

from holdfast.core import commands as c
from holdfast.core.access import Scope
from holdfast.core.job import Code
from holdfast.engine.metrics import OTHERS, TASKS

VALUE = r'[a-z]+="(?:[^"\\\n]|\\.)*"'
ROOT = Path(__file__).parents[2]
LINE = re.compile(rf"[a-z_]+({{{VALUE}(,{VALUE})*}})? [0-9.e+-]+")


def read(client):
    """The metrics by name and labels."""
    reply = client.get("/metrics")
    assert reply.status == 200, reply
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in reply.body.decode().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def end(served, task, code, tenant=""):
    """Add a job and end it."""
    served.connection.ask(c.Add(jobs=(c.NewJob(task=task, tenant=tenant, max_attempts=1),)))
    (claimed,) = served.connection.ask(c.Claim(tasks=(task,)))
    served.connection.ask(c.Answer(hold=c.hold_of(claimed.job), code=code))


def test_metrics_tell_what_is_there_and_what_ended(served, client):
    """Counters only grow: also when upkeep has moved the tallies, and when jobs are deleted."""
    served.connection.ask(c.Add(jobs=(c.NewJob(task="a"), c.NewJob(task="a"))))
    end(served, "b", Code.OK)
    end(served, "b", Code.FAILED)
    first = read(client)
    served.connection.ask(c.Upkeep())
    served.connection.ask(c.Purge(before_ms=1 << 42))
    second = read(client)

    assert (
        first['holdfast_jobs{task="a",state="ready"}'] + first['holdfast_jobs{task="a",state="scheduled"}']
        == 2
    )
    for found in (first, second):
        assert found['holdfast_runs_total{task="b",outcome="finished"}'] == 1
        assert found['holdfast_runs_total{task="b",outcome="failed"}'] == 1
    assert second['holdfast_jobs{task="b",state="failed"}'] == 1
    assert second["holdfast_workers"] == 0
    assert second["holdfast_commit_jobs_count"] > first["holdfast_commit_jobs_count"] >= 5
    assert second["holdfast_commit_jobs_sum"] > second["holdfast_commit_jobs_count"]
    assert second["holdfast_commit_seconds_sum"] > 0
    assert second["holdfast_leases_lost_total"] == 0


def test_any_number_of_tasks_has_bounded_series(served, client):
    """The first have their names, escaped; the others are one."""
    tasks = [f't{n} "quoted" \\' for n in range(TASKS + 50)]
    served.connection.ask(c.Add(jobs=tuple(c.NewJob(task=task) for task in tasks)))

    found = read(client)

    jobs = [name for name in found if name.startswith("holdfast_jobs{")]
    assert len({name.partition('",state')[0] for name in jobs}) == TASKS + 1
    assert sum(found[name] for name in jobs) == TASKS + 50
    assert sum(found[name] for name in jobs if f'"{OTHERS}"' in name) == 50


def test_metrics_need_a_token_that_may_read_and_tell_of_its_tenant(serve):
    """401 without, 403 with another scope; of one tenant its own."""
    served = serve(token_always=True)
    end(served, "mine", Code.OK, tenant="a")
    end(served, "theirs", Code.OK, tenant="b")
    with served.client() as client, served.client(served.token("add", Scope.ADD)) as adder:
        assert (client.get("/metrics").status, adder.get("/metrics").status) == (401, 403)
    with served.client(served.token("own", Scope.READ, tenant="a")) as own:
        found = read(own)
    assert [name for name in found if "theirs" in name or "commit" in name] == []
    assert found['holdfast_runs_total{task="mine",outcome="finished"}'] == 1


def test_the_dashboard_for_grafana_shows_metrics_that_the_page_describes():
    shown = set(re.findall(r"holdfast_[a-z_]+", (ROOT / "examples/grafana.json").read_text()))
    told = set(re.findall(r"`(holdfast_[a-z_]+)`", (ROOT / "docs/metrics.md").read_text()))

    assert {re.sub("_(bucket|sum|count)$", "", name) for name in shown} <= told
    assert len(shown) > 10


def test_no_counter_decreases_and_no_series_is_there_twice(served, client):
    """With more tasks than have series of their own, of which one is named like the others."""
    tasks = ["(others)", *(f"t{n}" for n in range(TASKS + 20))]
    before: dict[str, float] = {}
    for ending in (tasks[:60], tasks[60:], tasks[-5:] * 4, ["(others)"] * 3):
        for task in ending:
            end(served, task, Code.OK)
        served.connection.ask(c.Upkeep())
        lines = [line.rpartition(" ")[0] for line in client.get("/metrics").body.decode().splitlines()]
        counters = {name: number for name, number in read(client).items() if "_total{" in name}

        assert [line for line in lines if not line.startswith("#") and lines.count(line) > 1] == []
        assert [name for name, number in before.items() if counters.get(name, -1.0) < number] == []
        before = counters

    runs = {name: number for name, number in before.items() if name.startswith("holdfast_runs_total")}
    assert sum(runs.values()) == len(tasks) + 23
    assert len(runs) <= (TASKS + 1) * 4
