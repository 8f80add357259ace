"""The engine's limit: INSERT, UPDATE … RETURNING, run, DELETE, with apsw.

Three transactions a batch, each synced to disk before it returns.
"""

import time

from harness import TMP, VARIANT, chunks, tick_many

PEER = {
    "requires": ["apsw"],
    "server": None,
    "durability": "SQLite WAL, synchronous=FULL; acknowledged after it ran",
    "variants": {
        "1": {
            "single": 40_000,
            "bulk": None,
            "drain": 20_000,
            "settings": "one job a transaction; poll of 1 ms when idle",
        },
        "1000": {
            "single": None,
            "bulk": 1_500_000,
            "drain": 1_200_000,
            "settings": "1000 jobs a transaction; poll of 1 ms when idle",
        },
    },
}

import apsw

db = apsw.Connection(f"{TMP}/raw.db")
db.set_busy_timeout(5000)
db.execute("pragma journal_mode = wal; pragma synchronous = full")


def setup():
    db.execute("create table jobs (id integer primary key, claimed int default 0, payload text)")


def enqueue(payloads, bulk):
    insert = "insert into jobs (payload) values (?)"
    if bulk:
        for batch in chunks(payloads):
            with db:
                db.executemany(insert, ((p,) for p in batch))
    else:
        for p in payloads:
            db.execute(insert, (p,))


def work():
    size = int(VARIANT)
    while True:
        rows = db.execute(
            """
            update jobs set claimed = 1 where id in (
                select id from jobs where not claimed order by id limit ?)
            returning id, payload""",
            (size,),
        ).fetchall()
        if not rows:
            time.sleep(0.001)
            continue
        tick_many([r[1] for r in rows])
        with db:
            db.executemany("delete from jobs where id = ?", ((r[0],) for r in rows))


def pending():
    return db.execute("select count(*) from jobs").fetchone()[0]
