#!/usr/bin/env python3
"""Durable functions side by side: Holdfast and DBOS, on SQLite and PostgreSQL.

python functions.py                    three rounds of each in turn
python functions.py --rounds 1 --scale 0.1

Each round, in a process and an empty store of its own:

    one by one    functions of three steps, each awaited before the next is started
    64 at once    the same by 64 callers at once: coroutines here, threads in DBOS
    woken         how late functions go on that sleep for half a second, one after the other

Rates are functions a second by the clock, and per second of processor time of the process (without the
server's). Both keep every step before the next one begins, with the same settings of SQLite (WAL,
synchronous=FULL) and of the server.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run
import servers

PEERS = {
    "holdfast": {"module": "holdfast", "requires": ["holdfast-queue[all]"], "from": "BENCH_HOLDFAST"},
    "dbos": {"module": "dbos", "requires": ["dbos", "psycopg[binary]"]},
}
ONE_BY_ONE, AT_ONCE, WOKEN = 300, 1_280, 20
TOGETHER = 64
SLEEP_S = 0.5


def plus_one(number):
    return number + 1


class Meter:
    """The time and the processor time of some work."""

    def __enter__(self):
        self.start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall, self.cpu = time.perf_counter() - self.start[0], time.process_time() - self.start[1]

    def rates(self, count):
        return {"rate": count / self.wall, "cpu_rate": count / self.cpu}


def measure_holdfast(url, scale):
    import asyncio

    import holdfast

    queue = holdfast.connect(url)

    @queue.task
    def three(ctx: holdfast.Context, number: int) -> int:
        for name in ("a", "b", "c"):
            number = ctx.step(name, plus_one, number)
        return number

    def one(number):
        job = three.add(number)
        queue.next().run()
        assert job.result() == number + 3

    found = {"one": ordinary(one, int(ONE_BY_ONE * scale))}
    queue.close()
    return found | asyncio.run(measure_many(url, scale))


async def measure_many(url, scale):
    import asyncio

    import holdfast
    from holdfast.work.worker import working

    queue = holdfast.connect_async(url)

    @queue.task
    async def three(ctx: holdfast.AsyncContext, number: int) -> int:
        for name in ("a", "b", "c"):
            number = await ctx.step(name, plus_one, number)
        return number

    @queue.task
    async def nap(ctx: holdfast.AsyncContext) -> float:
        began = await ctx.step("began", time.time)
        await ctx.sleep(SLEEP_S)
        return time.time() - began - SLEEP_S

    count = int(AT_ONCE * scale)
    async with working(queue, threads=TOGETHER):
        await (await three.add(0)).result(wait=60)
        numbers = iter(range(count))

        async def caller():
            for number in numbers:
                assert await (await three.add(number)).result(wait=60) == number + 3

        with Meter() as meter:
            await asyncio.gather(*[caller() for _ in range(TOGETHER)])
        late = [await (await nap.add()).result(wait=60) for _ in range(int(WOKEN * scale) or 1)]
    return {"at_once": meter.rates(count), "woken_ms": [1000 * seconds for seconds in late]}


def measure_dbos(url, scale):
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    step = DBOS.step()(plus_one)

    @DBOS.workflow()
    def three(number):
        for _ in range(3):
            number = step(number)
        return number

    @DBOS.step()
    def now():
        return time.time()

    @DBOS.workflow()
    def nap():
        began = now()
        DBOS.sleep(SLEEP_S)
        return time.time() - began - SLEEP_S

    def one(number):
        assert three(number) == number + 3

    DBOS.launch()
    found = {"one": ordinary(one, int(ONE_BY_ONE * scale))}
    count = int(AT_ONCE * scale)

    def call(number):
        assert DBOS.start_workflow(three, number).get_result() == number + 3

    with Meter() as meter, ThreadPoolExecutor(TOGETHER) as callers:
        list(callers.map(call, range(count)))
    found["at_once"] = meter.rates(count)
    found["woken_ms"] = [DBOS.start_workflow(nap).get_result() * 1000 for _ in range(int(WOKEN * scale) or 1)]
    DBOS.destroy()
    return found


def ordinary(one, count):
    for number in range(10):
        one(number)
    with Meter() as meter:
        for number in range(count):
            one(number)
    return meter.rates(count)


def child(peer, url, scale):
    measure = {"holdfast": measure_holdfast, "dbos": measure_dbos}[peer]
    print(json.dumps(measure(url, scale)), flush=True)
    os._exit(0)  # threads of either may still be waiting


def a_round(peer, store, postgres, scale):
    python = run.python_of(PEERS[peer])
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        url = postgres.url
        if store == "sqlite":
            url = f"{folder}/{peer}.db" if peer == "holdfast" else f"sqlite:///{folder}/{peer}.db"
        else:
            postgres.reset()
        made = subprocess.run(
            [python, __file__, "--child", peer, url, str(scale)],
            capture_output=True,
            text=True,
            check=False,
            timeout=run.LIMIT,
        )
    if made.returncode:
        raise RuntimeError(f"{peer} on {store} failed:\n{made.stderr[-3000:]}")
    return json.loads(made.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = {}
    with servers.Postgres() as postgres:
        for _ in range(args.rounds):
            for store in ("sqlite", "postgres"):
                for peer in PEERS:
                    done = a_round(peer, store, postgres, args.scale)
                    found.setdefault(f"{peer} {store}", []).append(done)
                    print(peer, store, json.dumps(done), file=sys.stderr, flush=True)
    print("| | one by one/s | per cpu s | 64 at once/s | per cpu s | woken late, ms p50 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, rounds in found.items():
        cells = [
            statistics.median([one[phase][rate] for one in rounds])
            for phase in ("one", "at_once")
            for rate in ("rate", "cpu_rate")
        ]
        late = statistics.median([ms for one in rounds for ms in one["woken_ms"]])
        print(f"| {name} | " + " | ".join(f"{cell:,.0f}" for cell in cells) + f" | {late:.1f} |")
    if args.out:
        args.out.write_text(json.dumps(found | {"machine": run.machine()}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main()
