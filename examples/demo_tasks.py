"""The tasks of the demo: pictures that fail now and then, a limited site, reports, albums, a handler."""

import os
import random
import time

import holdfast

queue = holdfast.connect(os.environ["DEMO_STORE"])


@queue.task(attempts=3, backoff="2s")
def resize(path: str, width: int) -> dict[str, object]:
    """Most pictures are fine; some cannot be read, and are tried again."""
    time.sleep(random.uniform(0.02, 0.2))
    if path.startswith("broken") or random.random() < 0.08:
        raise ValueError(f"cannot read {path}: unexpected end of file")
    return {"path": path, "width": width, "bytes": random.randrange(10_000, 90_000)}


@queue.task
def fetch(url: str) -> int:
    """Its domain has a limit: two at once, five a second."""
    time.sleep(random.uniform(0.1, 0.4))
    return 200 if url else 404


@queue.task(timeout="5m")
def report(context: holdfast.Context, month: str) -> str:
    """A long job that tells how far it is."""
    for day in range(1, 31):
        context.log(f"day {day}: {random.randrange(900, 1100)} orders")
        context.progress(day / 30, f"day {day} of 30")
        time.sleep(0.7)
    return f"{month}.pdf"


@queue.task
def album(context: holdfast.Context, name: str, pictures: int) -> str | None:
    """A parent: its pictures are children, and it runs again when they have ended."""
    if ended := context.children():
        return f"{name}: {len(ended)} pictures"
    for n in range(pictures):
        context.add("resize", {"path": f"{name}/{n}.png", "width": 100})
    return None


# The store keeps this one, and `holdfast serve` runs it: see the page Handlers.
DISCOUNT = """\
print("order", data["order"])
return {{"order": data["order"], "price": round(data["price"] * {factor}, 2)}}
"""


def seed() -> None:
    """Add what is there when the dashboard opens."""
    queue.limit("shop.example", concurrency=2, rate=5)
    queue.schedule("hourly report", "report", {"month": "this"}, every="1h")
    queue.schedule("thumbnails", "resize", {"path": "hot.png", "width": 64}, every="15s")
    queue.add("import.legacy", {"file": "old.csv", "api_key": "not shown"})
    report.add(month="2026-05")
    for factor in (0.5, 0.9):
        queue.handlers.set("discount", DISCOUNT.format(factor=factor), lang="python", timeout="10s")
    for n in range(30):
        resize.using(delay=f"{n + 10}m").add(f"later/{n}.png", 100)


def feed() -> None:
    """Add a few jobs."""
    if random.random() < 0.1:
        resize.add(f"broken/{random.randrange(100)}.png", 200)
    for _ in range(random.randrange(1, 6)):
        resize.using(priority=random.choice((300, 500, 500, 900))).add(f"{random.randrange(10_000)}.png", 200)
    if random.random() < 0.5:
        fetch.using(domain="shop.example").add(f"https://shop.example/{random.randrange(1_000)}")
    if random.random() < 0.2:
        queue.add("discount", {"order": random.randrange(10_000), "price": random.randrange(5, 500)})
    if random.random() < 0.02:
        report.add(month=f"2026-{random.randrange(1, 13):02d}")
    if random.random() < 0.05:
        album.add(name="summer", pictures=3)
