"""Every list is paged: no page grows with the number of limits, tenants, tasks, workers or tokens."""

import asyncio
import gzip
import re
import time
from html import unescape
from typing import NamedTuple

import pytest

from holdfast.core import commands as c
from holdfast.core.handler import Handler, SetHandler
from holdfast.core.limits import Limit
from holdfast.core.schedule import Schedule
from holdfast.core.token import Scope, Token, hash_of
from holdfast.core.worker import Served as ServedTasks
from holdfast.core.worker import Worker
from holdfast.store.sqlite.store import SqliteStore
from tests.http.test_dashboard import send, token_of

AT_ONCE = 500
# What may be used for one request, of the processor time of the whole process: the server and its client.
OVERVIEW_CPU_S, PAGE_CPU_S = 0.05, 0.1
PAGE_BYTES = 200_000
LISTS = ("/tasks", "/limits", "/schedules", "/workers", "/handlers", "/consumers", "/settings", "/jobs")
API = ("limits", "schedules", "workers", "counts", "consumers", "tokens", "handlers")


class Size(NamedTuple):
    """How much of everything there is."""

    tasks: int
    tenants: int
    limits: int
    workers: int


SIZES = [
    pytest.param(Size(200, 500, 1_000, 50), id="tenth"),
    pytest.param(Size(2_000, 5_000, 10_000, 500), id="full", marks=pytest.mark.proof),
]


def commands(size):
    """What fills a store."""
    jobs = [c.NewJob(task=f"task{n}") for n in range(size.tasks)]
    jobs += [c.NewJob(task=f"task{n % size.tasks}", tenant=f"tenant{n}") for n in range(size.tenants)]
    yield from (c.Add(jobs=tuple(jobs[at : at + AT_ONCE])) for at in range(0, len(jobs), AT_ONCE))
    for n in range(size.limits):
        yield c.SetLimit(domain=b"domain%d" % n, limit=Limit(concurrency=3))
    for n in range(size.workers):
        served = ServedTasks(tasks=tuple(f"task{(n + at) % size.tasks}" for at in range(20)))
        yield c.Enlist(
            worker=Worker(name=f"w{n}", host="h", pid=n, started_at=n, until_ms=1 << 42, serves=(served,))
        )
        yield c.SetSchedule(schedule=Schedule(name=f"s{n}", cron="0 2 * * *"), job=c.NewJob(task="report"))
        yield c.StartProgress(name=f"consumer{n}", log="events")
        yield c.CreateToken(token=Token(name=f"token{n}", scopes=(Scope.READ,), hash=hash_of(str(n))))
        yield SetHandler(handler=Handler(task=f"handler{n}", lang="python", body="def run(job): pass"))


def fill(served, size):
    """Send the commands, many at once."""

    async def send_all():
        asked = list(commands(size))
        for at in range(0, len(asked), AT_ONCE):
            await asyncio.gather(*map(served.connection.ask_async, asked[at : at + AT_ONCE]))

    asyncio.run(send_all())


def cpu_of(client, path):
    """The processor time of a request, the least of three, and its reply."""
    least = None
    for _ in range(3):
        begun_s = time.process_time()
        reply = client.get(path)
        used_s = time.process_time() - begun_s
        least = used_s if least is None else min(least, used_s)
    assert reply.status == 200, (path, reply)
    return least, reply


@pytest.mark.parametrize("size", SIZES)
def test_a_page_costs_and_weighs_the_same_however_much_there_is(serve, size, tmp_path):
    """Bounds on processor time and bytes of each page, /metrics and the lists of the HTTP API."""
    served = serve(lambda: SqliteStore(tmp_path / "jobs.db"))
    fill(served, size)

    used = {}
    with served.client() as client:
        for path in ("/", "/metrics", *LISTS, *(f"/v1/{name}?limit=100" for name in API)):
            used[path] = cpu_of(client, path)

    for path, (used_s, reply) in used.items():
        assert used_s < (OVERVIEW_CPU_S if path in ("/", "/metrics") else PAGE_CPU_S), (path, used_s)
        assert len(reply.body) < PAGE_BYTES, (path, len(reply.body))


@pytest.fixture
def filled(served):
    """A server with three pages of everything."""
    fill(served, Size(120, 30, 120, 120))
    return served


def walk(client, path):
    """The bodies of all pages of a list, by their links to the next."""
    found = []
    while path:
        page = client.get(path)
        assert page.status == 200, (path, page)
        found.append(page.body.decode())
        match = re.search(r'href="([^"]*)" rel="next"', found[-1])
        path = unescape(match[1]) if match else None
    return found


def test_the_pages_of_a_list_have_each_entry_once(filled):
    """Tasks once for each tenant that has jobs of them."""
    names = {
        "/tasks": (r"<bdi>(task\d+)</bdi></a>", 150),
        "/limits": (r"<bdi>(domain\d+)<", 120),
        "/schedules": (r"<bdi>(s\d+)<", 120),
        "/workers": (r"<bdi>(w\d+)<", 120),
        "/handlers": (r"<bdi>(handler\d+)<", 120),
        "/consumers": (r"<bdi>(consumer\d+)<", 120),
        "/settings": (r"<bdi>(token\d+)<", 120),
    }
    for path, (name, count) in names.items():
        with filled.client() as client:
            pages = walk(client, path)

        found = [one for page in pages for one in re.findall(name, page)]
        assert len(pages) == 3, path
        assert (len(found), len(set(found))) == (count, 120), path


def test_lists_of_the_api_are_paged_by_the_last_name(filled):
    """A page with fewer entries than `limit` is the last; none is larger than a thousand."""
    for path, key in (("limits", "domain"), ("workers", "name"), ("tokens", "name"), ("handlers", "task")):
        names, page = [], [{key: ""}]
        with filled.client() as client:
            while page:
                page = client.ok("GET", f"/v1/{path}?limit=50&after_{key}={page[-1][key]}")[path]
                names += [one[key] for one in page]
            too_many = client.get(f"/v1/{path}?limit=1001")

        assert len(names) == len(set(names)) == 120
        assert too_many.status == 400


def test_counts_are_paged_by_tenant_and_task(filled):
    """All counts of a task are on one page; `merged` counts all tenants as one."""
    with filled.client() as client:
        first = client.ok("GET", "/v1/counts?limit=100")["counts"]
        last = first[-1]["of"]
        rest = client.ok(
            "GET", f"/v1/counts?limit=100&after_tenant={last['tenant']}&after_task={last['task']}"
        )["counts"]
        merged = client.ok("GET", "/v1/counts?merged=true&task=task7")["counts"]

    pairs = [(one["of"]["tenant"], one["of"]["task"]) for one in (*first, *rest)]
    assert len(first) == 100
    assert len(pairs) == len(set(pairs)) == 150
    assert pairs == sorted(pairs)
    assert sum(one["count"] for one in merged) == 2


def test_the_limit_of_one_domain_is_found(filled):
    """By its name, or by the pattern that matches it."""
    filled.connection.ask(c.SetLimit(domain=b"*.example.com", limit=Limit(rate=2.0)))
    with filled.client() as client:
        exact = client.get("/limits?domain=domain7").body.decode()
        by_pattern = client.get("/limits?domain=api.example.com").body.decode()
        none = client.get("/limits?domain=other.test").body.decode()

    assert re.findall(r"<bdi>(domain\d+)<", exact) == ["domain7"]
    assert "2/s" in by_pattern
    assert "No limit" in none


def test_replies_are_compressed_but_not_for_pages_of_other_sites(filled):
    """By gzip, if the client takes it. The token of forms differs from page to page, and each is valid."""
    takes = {"Accept-Encoding": "gzip, deflate"}
    with filled.client() as client:
        plain = client.get("/limits")
        small = client.get("/limits", **takes)
        metrics = client.get("/metrics", **takes)
        listed = client.get("/v1/limits", **takes)
        crossed = client.get("/limits", **takes, **{"Sec-Fetch-Site": "cross-site"})
        tokens = {token_of(client.get("/limits").body.decode()) for _ in range(2)}
        sent = [send(client, "/limits/lift", token, domain="other.test").status for token in tokens]

    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in crossed.headers
    for reply in (small, metrics, listed):
        assert reply.headers["content-encoding"] == "gzip"
        assert reply.headers["vary"] == "Accept-Encoding"
    assert len(small.body) < len(plain.body) / 5
    assert b"domain1" in gzip.decompress(small.body)
    assert len(tokens) == 2
    assert sent == [303, 303]
