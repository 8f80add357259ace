#!/usr/bin/env python3
"""Measures Python job queues side by side. See README.md.

python run.py                       everything, twice
python run.py --only rq --only huey@redis --runs 1
python run.py --list
python run.py --only holdfast --runs 1 --scale 0.01 --out try.json
python run.py --table results/2025-01-31.json
"""

import argparse
import ast
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import servers

HERE = Path(__file__).resolve().parent
VENVS = Path(os.environ.get("BENCH_VENVS") or Path(tempfile.gettempdir()) / "bench-venvs")
PHASES = ("single", "threads", "bulk", "drain", "latency")
COUNTED = ("single", "threads", "bulk", "drain")  # those for which a contender says how many jobs
OVERRIDES = {"redis": "BENCH_REDIS_ARGS", "postgres": "BENCH_PG_ARGS"}
LIMIT = 300  # seconds any one step may take


def contenders():
    """{'huey@sqlite': {...}, ...}, read without importing: the libraries are not ours."""
    found = {}
    for path in sorted((HERE / "peers").glob("[!_]*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PEER":
                peer = ast.literal_eval(node.value)
                for variant, facts in peer["variants"].items():
                    name = f"{path.stem}@{variant}" if variant else path.stem
                    found[name] = {"threads": None, **peer, **facts, "module": path.stem, "variant": variant}
    return found


def source_of(peer):
    """(folder, commit) of a contender that is not published; None of one that is."""
    if not (variable := peer.get("from")):
        return None
    folder = os.environ.get(variable) or str(HERE.parent)
    git = subprocess.run(
        ["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return Path(folder).resolve(), git.stdout.strip()


def python_of(peer):
    """The interpreter of the contender's virtual environment, made on first use."""
    venv = VENVS / peer["module"]
    requires, source = list(peer["requires"]), source_of(peer)
    if source:
        requires[0] = str(source[0]) + "".join(requires[0].partition("[")[1:])
    stamp, wanted = venv / "bench-requires", "\n".join([*requires, *(source or ())[1:]])
    if not stamp.exists() or stamp.read_text() != wanted:
        version = peer.get("python", "")
        base = os.environ.get("BENCH_PYTHON" + version.replace(".", "")) or (
            shutil.which(f"python{version}") if version else sys.executable
        )
        if not base:
            raise RuntimeError(f"no python{version}: set BENCH_PYTHON{version.replace('.', '')}")
        if not venv.exists():
            subprocess.run([base, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/python", "-m", "pip", "install", "-q", *requires], check=True)
        stamp.write_text(wanted)
    return venv / "bin/python"


class Bench:
    """One contender with the servers it may use; measures one phase at a time."""

    def __init__(self, name, peer, redis, postgres):
        self.name, self.peer, self.python = name, peer, python_of(peer)
        self.redis, self.postgres = redis, postgres
        self.server = {"redis": redis, "postgres": postgres}.get(peer["server"])
        source = source_of(peer)
        self.commit = {"commit": source[1]} if source else {}

    @contextlib.contextmanager
    def fresh(self):
        """Empty servers, an empty folder, and an empty file for the jobs to count in."""
        if self.server:
            self.server.reset()
        fd = os.memfd_create("ticks")
        with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as tmp:
            self.env = {
                **os.environ,
                "BENCH_TMP": tmp,
                "BENCH_REDIS": self.redis.url,
                "BENCH_PG": self.postgres.url,
                "BENCH_VARIANT": self.peer["variant"],
                "BENCH_TICKS": f"/proc/{os.getpid()}/fd/{fd}",
                "PYTHONPATH": str(HERE),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            try:
                self.versions = self.step("setup")["versions"] | self.commit
                yield fd
            finally:
                os.close(fd)

    def start(self, *args, **kwargs):
        return subprocess.Popen(
            [self.python, HERE / "child.py", args[0], self.peer["module"], *map(str, args[1:])],
            env=self.env,
            cwd=HERE,
            text=True,
            **kwargs,
        )

    def step(self, *args):
        process = self.start(*args, stdout=subprocess.PIPE)
        try:
            out, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise RuntimeError(f"{args[0]} took more than {LIMIT} s") from None
        if process.returncode:
            raise RuntimeError(f"{args[0]} failed")
        return json.loads(out.splitlines()[-1])

    @contextlib.contextmanager
    def worker(self):
        # Some workers are chatty or end noisily; their output is shown only on request.
        quiet = (
            {}
            if os.environ.get("BENCH_SHOW")
            else {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        )
        process = self.start("work", start_new_session=True, **quiet)
        try:
            yield process
        finally:
            for sign in (signal.SIGTERM, signal.SIGKILL):  # to the worker and its children
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)

    def records(self, fd, expected):
        """[(number, enqueued, started)] in ns; void unless every job ran exactly once."""
        data = os.pread(fd, os.fstat(fd).st_size, 0).decode()
        rows = [tuple(map(int, line.split())) for line in data.splitlines()]
        if len(rows) != expected or {r[0] for r in rows} != set(range(expected)):
            raise RuntimeError(
                f"void: {len(rows)} runs of {len({r[0] for r in rows})} jobs, expected {expected}"
            )
        return rows

    def fill(self, n, how):
        done = self.step("enqueue", n, how)
        if done["pending"] != n:
            raise RuntimeError(f"void: {done['pending']} jobs enqueued, expected {n}")
        return done["seconds"]

    def single(self, how="single"):
        if not (n := self.peer[how]):
            return None  # not offered
        with self.fresh():
            seconds = self.fill(n, how)
        return {"jobs": n, "seconds": seconds, "rate": n / seconds}

    def threads(self):
        return self.single("threads")

    def bulk(self):
        return self.single("bulk")

    def drain(self):
        n = self.peer["drain"]
        with self.fresh() as fd:
            self.fill(n, "bulk" if self.peer["bulk"] else "single")
            if self.peer.get("analyze"):  # helps some, harms others: see README.md
                self.postgres.analyze()
            spawned = time.monotonic_ns()
            with self.worker():
                acknowledged = self.step("watch", n)["acknowledged"]
            started = [r[2] for r in self.records(fd, n)]
        end = max(acknowledged, *started)
        seconds, wall = (end - min(started)) / 1e9, (end - spawned) / 1e9
        return {
            "jobs": n,
            "seconds": seconds,
            "rate": n / seconds,
            "wall": wall,
            "start": wall - seconds,
            "tail": (end - max(started)) / 1e9,
        }

    def latency(self):
        with self.fresh() as fd, self.worker():
            done = self.step("latency")
            rows = self.records(fd, done["jobs"])
        ms = sorted((start - made) / 1e6 for i, made, start in rows if i >= done["warmup"])
        return {
            "jobs": len(ms),
            "max": ms[-1],
            **{f"p{q}": ms[min(len(ms) - 1, len(ms) * q // 100)] for q in (50, 95, 99)},
        }


def median(runs):
    """The run in the middle of each phase; of an even number the better of the two."""
    result = {}
    for phase in PHASES:
        done = [r[phase] for r in runs if r.get(phase) and "error" not in r[phase]]
        if done:
            worst_first = sorted(done, key=lambda r: -r["p50"] if phase == "latency" else r["rate"])
            result[phase] = worst_first[len(done) // 2]
    return result


def table(results):
    def rate(r):
        return f"{r['rate']:,.0f}" if r else "–"

    def ms(r, key):
        return f"{r[key]:.2f}" if r else "–"

    head = (
        "contender",
        "version",
        "single/s",
        "16 threads/s",
        "bulk/s",
        "drain/s",
        "start s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "durability as shipped",
    )
    rows = []
    for name, r in results["contenders"].items():
        b, lat = r["median"], r["median"].get("latency")
        rows.append(
            (
                name,
                next(iter(r["versions"].values()), ""),
                rate(b.get("single")),
                rate(b.get("threads")),
                rate(b.get("bulk")),
                rate(b.get("drain")),
                f"{b['drain']['start']:.2f}" if b.get("drain") else "–",
                ms(lat, "p50"),
                ms(lat, "p95"),
                ms(lat, "p99"),
                r["durability"],
            )
        )
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    numeric = range(2, 10)

    def line(row):
        return (
            "| "
            + " | ".join(
                c.rjust(w) if i in numeric else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            + " |"
        )

    rule = "|" + "|".join("-" * (w + 1) + (":" if i in numeric else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def machine():
    """What the numbers depend on: processor, kernel, and the cost of one fdatasync here."""
    with tempfile.NamedTemporaryFile() as f:
        times = []
        for _ in range(200):
            os.pwrite(f.fileno(), b"x" * 4096, 0)
            t = time.perf_counter()
            os.fdatasync(f.fileno())
            times.append(time.perf_counter() - t)
    return {
        "arch": platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "fdatasync_us_p50": round(sorted(times)[100] * 1e6, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", action="append", help="a contender (all its variants) or one name@variant; may be repeated"
    )
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--phase", action="append", choices=PHASES)
    parser.add_argument(
        "--scale",
        type=float,
        default=1,
        help="this part of each phase's jobs: to see that it works, not to measure; needs --out",
    )
    parser.add_argument("--list", action="store_true", help="name the contenders and stop")
    parser.add_argument("--table", metavar="JSON", help="print the table of an earlier run")
    parser.add_argument("--out", type=Path, help="default: results/<date>.json, added to if there")
    args = parser.parse_args()

    if args.table:
        print(table(json.loads(Path(args.table).read_text())))
        return
    chosen = {
        n: p for n, p in contenders().items() if not args.only or n in args.only or p["module"] in args.only
    }
    if args.list or not chosen:
        print("\n".join(contenders()))
        return
    if args.scale != 1:
        if not args.out:
            parser.error("--scale needs --out: such figures do not belong among the others")
        for peer in chosen.values():
            peer |= {k: max(1, int(peer[k] * args.scale)) for k in COUNTED if peer[k]}

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that servers are stopped
    out = args.out or HERE / "results" / f"{time.strftime('%Y-%m-%d')}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(out.read_text()) if out.exists() else {"contenders": {}}
    with servers.Redis() as redis, servers.Postgres() as postgres:
        results |= {
            "machine": machine(),
            "payload_bytes": harness.PAYLOAD_BYTES,
            "redis": redis.about(),
            "postgres": postgres.about(),
        }
        for number in range(args.runs):
            for name, peer in chosen.items():
                run = {"at": time.strftime("%H:%M:%S")}
                try:
                    bench = Bench(name, peer, redis, postgres)
                except Exception as error:  # no such interpreter, pip failed: note it, go on
                    print(f"{name}: {error}", file=sys.stderr)
                    continue
                for phase in args.phase or PHASES:
                    try:
                        run[phase] = getattr(bench, phase)()
                    except Exception as error:  # note it and go on
                        run[phase] = {"error": f"{type(error).__name__}: {error}"}
                    print(f"run {number + 1}  {name:<22} {phase:<8}", show(run[phase]), flush=True)
                entry = results["contenders"].setdefault(name, {"runs": []})
                entry["runs"].append(run)
                entry |= {k: peer[k] for k in ("durability", "settings")}
                if other := os.environ.get(OVERRIDES.get(peer["server"], "")):
                    entry["durability"] = f"NOT as shipped: {other}"
                entry |= {"versions": bench.versions, "median": median(entry["runs"])}
                results["contenders"] = dict(sorted(results["contenders"].items(), key=order))
                out.parent.mkdir(exist_ok=True)
                out.write_text(json.dumps(results, indent=1) + "\n")
    print("\n" + table(results))


def order(item):
    """Raw engines first, then by engine, then by name."""
    peers = contenders()
    peer = peers.get(item[0], {})
    return (not item[0].startswith("raw"), peer.get("server") or "", item[0])


def show(result):
    if not result:
        return "not offered"
    if "error" in result:
        return result["error"]
    if "p50" in result:
        return "p50 {p50:.2f}  p95 {p95:.2f}  p99 {p99:.2f} ms".format(**result)
    note = "" if 3 <= result["seconds"] <= 20 else "   (outside 3-20 s: change N)"
    return "{rate:>10,.0f}/s  {jobs:>9,} jobs in {seconds:.1f} s".format(**result) + note


if __name__ == "__main__":
    main()
