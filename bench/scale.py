#!/usr/bin/env python3
"""How Holdfast bears many jobs: what a million of them cost, and whether the next one costs more.

    python scale.py sqlite                      a file in a temporary folder
    python scale.py postgres                    a private server, as run.py starts it
    python scale.py redis                       the same; BENCH_REDIS_ARGS, BENCH_PG_ARGS count here too
    python scale.py redis://host/0              or a server of yours, or the name of a file
    python scale.py sqlite --jobs 10000         to see that it works, not to measure

Needs an interpreter that has Holdfast, such as that of its environment among run.py's. Only the
public interface is used, with default options. Stores of its own are made beside the one that the
address names (files, schemas, prefixes, all called scale_…), and removed at the end.

1  add_many, 1000 at a time, and the rate of each tenth: does it stay flat? memory, size of a job
2  claim and finish with all of them waiting, in turns with the same where only 1000 wait
3  counts, and the first page of a listing
4  claims among a tenth as many domains, each with a limit and two jobs
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

import holdfast
import run
import servers
from harness import PAYLOAD_BYTES

BY = 1000  # jobs an add_many
TURN = 1000  # jobs claimed and finished in one turn; so many wait where few wait
CLAIM = 100  # jobs a claim, where they are claimed by many
LOOKS = 100  # times that counts and listings are asked for
PAYLOAD = "x" * PAYLOAD_BYTES


class Place:
    """Where stores are made: SQLite files, schemas of a PostgreSQL, or prefixes of a Redis."""

    def __init__(self, url):
        self.url = url
        self.kind = url.partition("://")[0].removesuffix("ql") if "://" in url else "sqlite"
        if self.kind not in ("sqlite", "postgres", "redis"):
            sys.exit(f"{self.kind}: name a file, or a postgresql:// or redis:// address")
        if self.kind == "sqlite":
            self.folder = Path(urllib.parse.unquote(url.removeprefix("sqlite:///"))).parent

    @contextlib.contextmanager
    def store(self, name):
        """The address of an empty store; gone afterwards."""
        self.clear(name)
        try:
            yield self.address(name)
        finally:
            self.clear(name)

    def address(self, name):
        if self.kind == "sqlite":
            return str(self.folder / f"scale_{name}.db")
        word = {"postgres": "schema", "redis": "prefix"}[self.kind]
        return f"{self.url}{'&' if '?' in self.url else '?'}{word}=scale_{name}"

    def clear(self, name):
        if self.kind == "sqlite":
            for path in self.folder.glob(f"scale_{name}.db*"):
                path.unlink(missing_ok=True)
        elif self.kind == "postgres":
            self._sql(f'drop schema if exists "scale_{name}" cascade')
        else:
            with self._redis() as client:
                for key in client.scan_iter(f"{{hf:scale_{name}:*", count=10_000):
                    client.unlink(key)

    def sizes(self, name):
        """{what: bytes} that a store takes; of a Redis, the whole server."""
        if self.kind == "sqlite":
            files = {p.name: p.stat().st_size for p in self.folder.glob(f"scale_{name}.db*")}
            log = sum(size for file, size in files.items() if file.endswith("-wal"))
            return {"file": sum(files.values()) - log, "log": log}
        if self.kind == "postgres":
            rows = self._sql(
                "select coalesce(sum(pg_table_size(c.oid)), 0), coalesce(sum(pg_indexes_size(c.oid)), 0)"
                " from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                " where n.nspname = %s and c.relkind = 'r'",
                f"scale_{name}",
            )
            return {"tables": int(rows[0][0]), "indexes": int(rows[0][1])}
        with self._redis() as client:
            log = client.info("persistence").get("aof_current_size", 0)
            return {"memory": client.info("memory")["used_memory"], **({"log": log} if log else {})}

    def _sql(self, text, *values):
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text, values)
            return cursor.fetchall() if cursor.description else []

    def _redis(self):
        import redis

        return redis.Redis.from_url(self.url)


def memory_mb():
    """(now, at most) of this process."""
    words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(words[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))


def timed(work):
    """(ms, what it returned)"""
    start = time.perf_counter()
    value = work()
    return (time.perf_counter() - start) * 1000, value


def points(times):
    """{p50, p99, max} of some times in ms."""
    times = sorted(times)
    return {
        "p50": statistics.median(times),
        "p99": times[min(len(times) - 1, len(times) * 99 // 100)],
        "max": times[-1],
    }


def fill(queue, n):
    for start in range(0, n, BY):
        queue.add_many([("noop", {"payload": PAYLOAD})] * min(BY, n - start))


def waiting(queue):
    return sum(states.get("QUEUED", 0) for states in queue.counts().values())


def check(found, expected, what):
    if found != expected:
        sys.exit(f"void: {found} {what}, expected {expected}")


def measure_add(queue, n):
    """The rate of each tenth, and the memory of this process."""
    rows, slice_ = [], max(n // 10, BY)
    for start in range(0, n, slice_):
        count = min(slice_, n - start)
        ms, _ = timed(lambda count=count: fill(queue, count))
        rows.append({"jobs": start + count, "rate": count / ms * 1000, "memory_mb": memory_mb()[0]})
        print(
            f"   {start + count:>9,} jobs  {rows[-1]['rate']:>9,.0f}/s  {rows[-1]['memory_mb']:>6,.0f} MB",
            flush=True,
        )
    check(waiting(queue), n, "jobs wait")
    return {
        "slices": rows,
        "last_to_first": rows[-1]["rate"] / rows[0]["rate"],
        "memory_mb_most": memory_mb()[1],
    }


async def by_many(queue, count):
    """Claim and finish so many, a hundred at a time; how many a second."""
    start, done = time.perf_counter(), 0
    while done < count:
        claimed = await queue.claim(["noop"], limit=min(CLAIM, count - done))
        check(bool(claimed), True, "was there to claim")
        await asyncio.gather(*(job.done() for job in claimed))
        done += len(claimed)
    return count / (time.perf_counter() - start)


def by_one(queue, count):
    """Claim and finish so many, one by one: (how many a second, ms of each claim, ms of each finish)."""
    claims, ends, start = [], [], time.perf_counter()
    for _ in range(count):
        ms, job = timed(lambda: queue.next(["noop"]))
        check(job is not None, True, "was there to claim")
        claims.append(ms)
        ends.append(timed(job.done)[0])
    return count / (time.perf_counter() - start), claims, ends


async def measure_claims(few, many, turns):
    """Claim and finish where few wait, and where many do: in turns, for machines are noisy."""
    rates = {kind: {"few": [], "many": []} for kind in ("by_many", "by_one")}
    claims = {"few": [], "many": []}
    async with contextlib.AsyncExitStack() as stack:
        both = {}
        for side, address in (("few", few), ("many", many)):
            both[side] = (
                stack.enter_context(holdfast.connect(address)),
                await stack.enter_async_context(holdfast.connect_async(address)),
            )
        left = {"many": waiting(both["many"][0])}
        for _ in range(turns):
            for side, (queue, aio) in both.items():
                for kind in rates:
                    if side == "few":
                        fill(queue, TURN - waiting(queue))
                    count = TURN if kind == "by_many" else TURN // 5
                    if kind == "by_many":
                        rates[kind][side].append(await by_many(aio, count))
                    else:
                        rate, ms, _ = by_one(queue, count)
                        rates[kind][side].append(rate)
                        claims[side] += ms
                    if side == "many":
                        left["many"] -= count
        check(waiting(both["many"][0]), left["many"], "jobs wait")
    return {
        "waiting": {"few": TURN, "many": left["many"]},
        "claim_ms": {s: points(ms) for s, ms in claims.items()},
        **{kind: {s: statistics.median(r) for s, r in sides.items()} for kind, sides in rates.items()},
    }


def measure_looks(queue):
    """Counts and listings, in ms."""
    looks = {
        "counts": queue.counts,
        "first page of 100": queue.jobs,
        "first page, task and state": lambda: queue.jobs(task="noop", state="queued"),
        "first page, archived": lambda: queue.jobs(archived=True),
    }
    for look in looks.values():
        check(bool(look()), True, "was found")
    return {name: points([timed(look)[0] for _ in range(LOOKS)]) for name, look in looks.items()}


def measure_domains(queue, count, claims, each):
    """A claim among so many domains, each with a limit and two jobs, of which one can start."""
    if each:
        for n in range(count):
            queue.limit(f"host-{n}", rate=1, concurrency=1)
    else:
        queue.limit("host-*", rate=1, concurrency=1)
    start = time.perf_counter()
    for _ in range(2):
        for first in range(0, count, BY):
            queue.add_many(
                [
                    queue.call("noop", {"payload": PAYLOAD}, domain=f"host-{n}")
                    for n in range(first, min(first + BY, count))
                ]
            )
    filled = 2 * count / (time.perf_counter() - start)
    rate, times, ends = by_one(queue, min(claims, count))
    return {
        "domains": count,
        "fill_rate": filled,
        "rate": rate,
        "claim_ms": points(times),
        "finish_ms": points(ends),
    }


def measure(place, args):
    n, result = args.jobs, {}
    with place.store("many") as many, place.store("few") as few:
        with holdfast.connect(many) as queue:
            queue.counts()  # opens the store, and makes the tables
            before = place.sizes("many")
            print(f"1  add_many of {n:,}", flush=True)
            result["add_many"] = measure_add(queue, n)
        sizes = place.sizes("many")  # now that it is closed: of a file, the log is in it
        result["add_many"]["bytes_a_job"] = {
            k: max(size - before.get(k, 0), 0) / n for k, size in sizes.items()
        }
        print("2  claim and finish", flush=True)
        result["claims"] = asyncio.run(measure_claims(few, many, args.turns))
        print("3  counts and listings", flush=True)
        with holdfast.connect(many) as queue, holdfast.connect(few) as small:
            result["looks"] = {"many": measure_looks(queue), "few": measure_looks(small)}
    print("4  domains", flush=True)
    with place.store("domains") as url, holdfast.connect(url) as queue:
        result["domains"] = measure_domains(queue, max(n // 10, 1), args.claims, args.each)
    return result


def table(result):
    def ms(p):
        return f"{p['p50']:.2f} / {p['p99']:.2f} ms"

    add, claims, looks, domains = (result[k] for k in ("add_many", "claims", "looks", "domains"))
    rates = [row["rate"] for row in add["slices"]]
    many = f"{claims['waiting']['many']:,} waiting"
    rows = [
        ("what", many, "1,000 waiting", "ratio"),
        (
            "add_many: first tenth, last tenth",
            f"{rates[0]:,.0f}/s, {rates[-1]:,.0f}/s",
            "",
            f"{add['last_to_first']:.2f}",
        ),
        (
            "add_many: slowest and fastest tenth",
            f"{min(rates):,.0f}/s, {max(rates):,.0f}/s",
            "",
            f"{min(rates) / max(rates):.2f}",
        ),
        ("memory of the process that adds, at most", f"{add['memory_mb_most']:,.0f} MB", "", ""),
        ("bytes a job", ", ".join(f"{k} {v:,.0f}" for k, v in add["bytes_a_job"].items()), "", ""),
        *(
            (
                f"claim + finish {text}",
                f"{claims[k]['many']:,.0f}/s",
                f"{claims[k]['few']:,.0f}/s",
                f"{claims[k]['many'] / claims[k]['few']:.2f}",
            )
            for k, text in (("by_many", f"by {CLAIM}"), ("by_one", "one by one"))
        ),
        (
            "claim, one by one, p50 / p99",
            ms(claims["claim_ms"]["many"]),
            ms(claims["claim_ms"]["few"]),
            f"{claims['claim_ms']['many']['p50'] / claims['claim_ms']['few']['p50']:.2f}",
        ),
        *(
            (
                f"{name}, p50 / p99",
                ms(p),
                ms(looks["few"][name]),
                f"{p['p50'] / looks['few'][name]['p50']:.2f}",
            )
            for name, p in looks["many"].items()
        ),
        (f"claim among {domains['domains']:,} limited domains, p50 / p99", ms(domains["claim_ms"]), "", ""),
        ("  finish there, p50 / p99", ms(domains["finish_ms"]), "", ""),
        ("  add_many there", f"{domains['fill_rate']:,.0f}/s", "", ""),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "| "
        + " | ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", help="sqlite, postgres, redis, or an address")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5, help="of claiming where many and few wait")
    parser.add_argument("--claims", type=int, default=1000, help="among the domains")
    parser.add_argument("--each", action="store_true", help="a limit for each domain, not one pattern")
    parser.add_argument("--out", type=Path, help="where to write all figures, as JSON")
    args = parser.parse_args()
    least = TURN * 2 * args.turns
    if args.jobs < least:
        parser.error(f"--jobs is {args.jobs}, and must be at least {least} for so many turns")
    with contextlib.ExitStack() as stack:
        about, url = {}, args.store
        if url == "sqlite":
            url = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-scale-")) + "/jobs.db"
        elif url in ("postgres", "redis"):
            server = stack.enter_context({"postgres": servers.Postgres, "redis": servers.Redis}[url]())
            server.reset()
            about, url = server.about(), server.url
        facts = {
            "store": args.store.partition("://")[0],
            "server": about,
            "jobs": args.jobs,
            "holdfast": holdfast.__version__,
            "machine": run.machine(),
        }
        print("  ".join(f"{k} {v}" for k, v in facts.items() if v), flush=True)
        facts |= measure(Place(url), args)
    if args.out:
        args.out.write_text(json.dumps(facts, indent=1) + "\n")
    print("\n" + table(facts))


if __name__ == "__main__":
    main()
