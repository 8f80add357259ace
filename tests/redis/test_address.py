"""Addresses, servers that cannot be used, promises that they cannot keep; and that no password is shown."""

import shutil
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import BadInput, SchemaMismatch, StoreError, StoreFull, Unavailable
from holdfast.core.queries import CheckCounts
from holdfast.queue.connect import shown_url
from holdfast.store.redis import store as redis_store
from holdfast.store.redis.connection import server_of
from holdfast.store.redis.keys import Keys
from holdfast.store.redis.open import check_server, look
from holdfast.store.redis.reads import RedisReads
from holdfast.store.redis.store import RedisStore
from holdfast.store.redis.url import parse
from holdfast.testing.stores.making import a_job, add
from tests.ports import free_port
from tests.programs import or_skip, program
from tests.redis_servers import RedisServer, redis_or_skip, until
from tests.store.helpers import SRC, all_ids

SECRET = "s3cr3t-word"


def told(url, kind=StoreError):
    """What the first verb says about an address; without the password."""
    store = RedisStore(url, patience_s=0.2)
    with pytest.raises(kind) as caught:
        add(store, a_job(1))
    store.close()
    assert SECRET not in f"{caught.value} {caught.value!r} {store!r} {caught.value.__cause__!r}"
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("prefix=", "prefix"),
        ("prefix=a}b", "prefix"),
        ("prefix=" + "x" * 65, "prefix"),
        ("durability=some", "durability"),
        ("replicas=0", "replicas"),
        ("replicas=many", "replicas"),
        ("nonsense=1", "store option"),
    ],
)
def test_a_bad_address_is_refused_at_once(query, name):
    """By the name of what is wrong."""
    with pytest.raises(BadInput, match=name) as caught:
        holdfast.connect(f"redis://u:{SECRET}@localhost/0?{query}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:p@host:{SECRET}/0",
        f"redis://u:{SECRET}@[::1/0",
        f"redis://u:{SECRET}@host/first",
        f"redis://u:{SECRET}@one,two/0",
        f"redis+cluster://u:{SECRET}@one,two/3",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_without_being_shown(url):
    """What is left of a password may stand where a port or a host should."""
    with pytest.raises(BadInput, match="must be redis://") as caught:
        holdfast.connect(url)
    assert SECRET not in str(caught.value)


def test_an_address_says_who_where_and_how():
    """All its parts, for one server and for a cluster."""
    one = parse(f"rediss://me%40home:{SECRET}@[::1]:7000/3?prefix=shop&durability=always&ssl_ca_certs=ca.pem")
    many = parse("redis+cluster://a:1,b/?durability=replicated&replicas=2")

    assert (one.hosts, one.db, one.user, one.password) == ((("::1", 7000),), 3, "me@home", SECRET)
    assert (one.tls, one.tls_files, one.durability) == (True, (("ssl_ca_certs", "ca.pem"),), "always")
    assert one.shown == "rediss://me@home@::1:7000/3?prefix=shop"
    assert (many.hosts, many.cluster, many.replicas) == ((("a", 1), ("b", 6379)), True, 2)
    assert SECRET not in f"{one!r}{shown_url(f'redis://u:{SECRET}@h/0')}"


def test_who_cannot_be_reached_or_does_not_let_us_in_is_told():
    """At once, with what to look at."""
    assert "is the server running" in told(f"redis://u:{SECRET}@127.0.0.1:1/0", Unavailable)
    assert "is the server running" in told(f"redis+cluster://u:{SECRET}@127.0.0.1:1/", Unavailable)


@pytest.mark.parametrize("server", [{"requirepass": "right"}], indirect=True)
def test_a_wrong_password_is_told(server):
    """And none at all; the right one opens."""
    assert "does not accept the user" in told(f"redis://:{SECRET}@127.0.0.1:{server.port}/0")
    assert "does not accept the user" in told(f"redis://127.0.0.1:{server.port}/0")
    with holdfast.connect(f"redis://:right@127.0.0.1:{server.port}/0") as queue:
        assert queue.add("work").id


def test_a_user_of_an_access_list_needs_the_rights_of_the_document(server):
    """These are enough; with fewer it is told what is missing."""
    rights = ["+@read", "+@write", "+@connection", "+@pubsub", "+@scripting"]
    rights += ["+info", "+time", "+config|get", "+wait"]
    keys = ["~{hf:shop:0}:*", "resetchannels", "&{hf:shop:0}:*"]
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "on", f">{SECRET}", *keys, *rights)
        client.execute_command("ACL", "SETUSER", "low", "on", f">{SECRET}", *keys, "+@read", "+@connection")
        client.execute_command("ACL", "SETUSER", "mute", "on", f">{SECRET}", *keys, *rights, "-config")
        client.config_set("appendonly", "yes")
    where = f"127.0.0.1:{server.port}/0?prefix=shop"

    with holdfast.connect(f"redis://app:{SECRET}@{where}") as queue:
        queue.add("work")
        assert queue.next(wait=1)
    assert "does not allow that" in told(f"redis://low:{SECRET}@{where}")
    assert "config|get" in told(f"redis://mute:{SECRET}@{where}&durability=always")


def test_a_server_that_may_throw_jobs_away_is_refused(server):
    """With the setting to change; and after that it is not."""
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert "CONFIG SET maxmemory-policy noeviction" in told(server.url())
        client.config_set("maxmemory-policy", "noeviction")
    store = RedisStore(server.url())
    add(store, a_job(1))
    store.close()


def test_a_promise_that_the_server_cannot_keep_is_refused(server):
    """Each with the setting to change, until it is changed."""
    with server.client() as client:
        assert "CONFIG SET appendonly yes" in told(server.url(durability="everysec"))
        client.config_set("appendonly", "yes")
        client.config_set("appendfsync", "no")
        assert "CONFIG SET appendfsync everysec" in told(server.url(durability="everysec"))
        client.config_set("appendfsync", "everysec")
        assert "CONFIG SET appendfsync always" in told(server.url(durability="always"))
        assert "1 replica," in told(server.url(durability="replicated"))
        client.config_set("appendfsync", "always")
    for durability in ("memory", "everysec", "always", ""):
        store = RedisStore(server.url(durability=durability))
        add(store, a_job(1))
        assert store.report().complaints == []
        store.close()


def test_a_replica_is_refused_and_a_commit_waits_for_it(server, monkeypatch):
    """What it is told by the master it has before the call returns; if it does not answer that is told."""
    replica = redis_or_skip(replicaof=f"127.0.0.1 {server.port}")
    try:
        with replica.client() as client, server.client() as master:
            until(lambda: client.info("replication")["master_link_status"] == "up")
            assert "use the address of the master" in told(replica.url())
            url = server.url(durability="replicated")
            store = RedisStore(url)
            for n in range(1, 20):
                add(store, a_job(n))
                assert client.hlen(f"{{hf:{store.address.prefix}:0}}:jobs") == n

            master.execute_command("CLIENT", "KILL", "TYPE", "replica")
            client.replicaof("NO", "ONE")
            until(lambda: master.info("replication")["connected_slaves"] == 0)
            monkeypatch.setattr(redis_store, "REPLICAS_MS", 300)
            with pytest.raises(Unavailable, match="may be lost with the master"):
                add(store, a_job(99))
            store.close()
    finally:
        replica.close()


def test_no_memory_is_told(server):
    """Nothing of the batch is written; with more memory it goes on."""
    store = RedisStore(server.url())
    add(store, a_job(1))
    with server.client() as client:
        # Less than an empty server has, whatever it was built with.
        client.config_set("maxmemory", "100kb")
        with pytest.raises(StoreFull, match="raise maxmemory"):
            add(store, a_job(2))
        client.config_set("maxmemory", "0")
    add(store, a_job(3))

    assert all_ids(store) == [1, 3]
    store.close()


def test_a_disk_that_cannot_be_written_is_told(server, tmp_path):
    """Redis refuses writes when it could not save."""
    store = RedisStore(server.url())
    add(store, a_job(1))
    folder = tmp_path / "gone"
    folder.mkdir()
    with server.client() as client:
        client.config_set("dir", str(folder))
        shutil.rmtree(folder)
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        # Not before: the server would begin to save by itself.
        client.config_set("save", "1 1")
        with pytest.raises(StoreFull, match="cannot write its disk"):
            add(store, a_job(2))
        client.config_set("save", "")
        client.config_set("stop-writes-on-bgsave-error", "no")
    add(store, a_job(3))
    store.close()


def test_an_old_server_and_a_newer_layout_are_refused(store, redis_server):
    """By their numbers."""
    add(store, a_job(1))
    keys = Keys(store.address.prefix)
    connections = server_of(store.address, keys.base)
    found = look(connections, keys)
    connections.close()
    with pytest.raises(StoreError, match=r"must be Redis 6\.2 or later"):
        check_server(found._replace(version=(6, 0)), store.address)
    with redis_server.client() as client:
        client.set(keys.version, "2 2 ")

    with pytest.raises(SchemaMismatch, match=r"layout 2; this one knows up to 1\): upgrade"):
        add(RedisStore(redis_server.url(store.address.prefix)), a_job(2))


def test_a_connection_of_the_callers_is_refused(queue):
    """With the stores that have such."""
    with pytest.raises(BadInput, match="SQLite or PostgreSQL"):
        queue.add("work", connection=object())


def test_the_doctor_looks_at_a_store(redis_url, queue):
    """From the command line, by its address."""
    queue.add("work")
    command = [sys.executable, "-m", "holdfast", "doctor", "--store", redis_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(SRC)})

    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is wrong" in done.stdout
    assert "live jobs" in done.stdout


def test_counts_of_jobs_that_change_while_they_are_counted_are_not_wrong(redis_url, queue, monkeypatch):
    """A view of many pages is of many moments: the doctor of a busy store finds nothing wrong."""
    list_jobs = RedisReads.jobs

    def add_and_list(reads, query, *, after, **options):
        if not after:
            with holdfast.connect(redis_url) as other:
                other.add("work")
        return list_jobs(reads, query, after=after, **options)

    monkeypatch.setattr(RedisReads, "jobs", add_and_list)

    assert queue.connection.ask(CheckCounts()) == []


def test_without_the_library_the_line_that_installs_it_is_told():
    """By `connect`."""
    code = "import sys; sys.modules['hiredis'] = None; import holdfast; holdfast.connect('redis://localhost')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(SRC)})

    assert "pip install 'holdfast-queue[redis]'" in done.stderr


def test_a_store_is_reached_by_tls(tmp_path):
    """With a certificate that is checked; by one that is not known it is refused."""
    openssl = or_skip(lambda: program("openssl", "openssl"), what="BY TLS")
    key, certificate, port = tmp_path / "key.pem", tmp_path / "cert.pem", free_port()
    words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, "req", *words], check=True, capture_output=True, timeout=60)
    files: dict[str, Any] = {
        "tls_cert_file": str(certificate),
        "tls_key_file": str(key),
        "tls_ca_cert_file": str(certificate),
    }
    tls = {"tls_port": str(port), "tls_auth_clients": "no"} | files
    server = or_skip(lambda: RedisServer(**tls), what="BY TLS")
    try:
        url = f"rediss://127.0.0.1:{port}/0?prefix=tls"
        with holdfast.connect(f"{url}&ssl_ca_certs={certificate}") as queue:
            assert queue.add("work").id
        # At once: no other try makes it right.
        store = RedisStore(url, patience_s=600)
        with closing(store), pytest.raises(StoreError, match="check its TLS and the certificates"):
            add(store, a_job(1))
    finally:
        server.close()
