"""The engine's limit: INSERT, UPDATE … SKIP LOCKED, run, DELETE, with psycopg 3.

Three transactions a batch, prepared statements, one partial index.
"""

import time

from harness import PG, VARIANT, chunks, pg_count, tick_many

PEER = {
    "requires": ["psycopg[binary]"],
    "server": "postgres",
    "analyze": True,
    "durability": "PostgreSQL, fsync on; acknowledged after it ran",
    "variants": {
        "1": {
            "single": 20_000,
            "bulk": None,
            "drain": 10_000,
            "settings": "one job a statement; poll of 1 ms when idle",
        },
        "1000": {
            "single": None,
            "bulk": 300_000,
            "drain": 300_000,
            "settings": "1000 jobs a statement; poll of 1 ms when idle",
        },
    },
}

import psycopg


def connect():
    return psycopg.connect(PG, autocommit=True, prepare_threshold=0)


def setup():
    connect().execute(
        """
        create table jobs (id bigint generated always as identity primary key,
                           claimed boolean not null default false, payload text not null);
        create index on jobs (id) where not claimed""",
        prepare=False,
    )


def enqueue(payloads, bulk):
    db = connect()
    if bulk:
        for batch in chunks(payloads):
            db.execute("insert into jobs (payload) select unnest(%s::text[])", (batch,))
    else:
        for p in payloads:
            db.execute("insert into jobs (payload) values (%s)", (p,))


def work():
    db, size = connect(), int(VARIANT)
    while True:
        rows = db.execute(
            """
            update jobs set claimed = true where id = any(array(
                select id from jobs where not claimed order by id limit %s
                for update skip locked))
            returning id, payload""",
            (size,),
        ).fetchall()
        if rows:
            tick_many([r[1] for r in rows])
            db.execute("delete from jobs where id = any(%s)", ([r[0] for r in rows],))
        else:
            time.sleep(0.001)


def pending():
    return pg_count("select count(*) from jobs")
