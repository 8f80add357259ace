"""The trace of a job through each interface: the client that adds it names a span, and its readers find the
trace."""

import grpc
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.engine.store_connection import StoreConnection
from holdfast.proto.conversion import message
from holdfast.store.memory.store import MemoryStore
from tests.cli.shell import Shell
from tests.http.served import Served as HttpServed
from tests.remote.served import Served as GrpcServed
from tests.traces.test_traces import PARENT, TRACE_ID, trace_of

OTHER = PARENT.replace(TRACE_ID, "f" * 32)


@pytest.fixture
def client():
    served = HttpServed(MemoryStore)
    with served.client() as client:
        yield client
    served.close()


@pytest.fixture
def grpc_port():
    connection = StoreConnection(MemoryStore(), rng=lambda: 0.5)
    served = GrpcServed(connection)
    yield served.port
    served.close()
    connection.close()


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/v1/jobs", b'{"task": "resize"}', "id"),
        ("/schedule/", b'{"job_type": "resize", "payload": 1}', "job_id"),
        ("/acme/job/resize/add", b"1\n2\n", "ids"),
    ],
)
def test_http_takes_the_header_of_the_client(client, path, body, key):
    reply = client.post(path, body, traceparent=PARENT)

    assert reply.status < 300, reply
    found = reply.json[key]
    for job_id in found if isinstance(found, list) else [found]:
        assert client.ok("GET", f"/v1/jobs/{job_id}")["traceparent"] == PARENT


def test_a_job_of_http_may_name_its_own_span_and_a_malformed_header_is_none(client):
    lines = b'{"task": "a"}\n{"task": "b", "traceparent": "%s"}\n' % OTHER.encode()
    headers = {"content-type": "application/x-ndjson"}

    def spans_of(traceparent: str) -> list[str]:
        added = client.ask("POST", "/v1/jobs", lines, headers | {"traceparent": traceparent}).lines
        return [client.ok("GET", f"/v1/jobs/{one['id']}").get("traceparent", "") for one in added]

    assert spans_of(PARENT) == [PARENT, OTHER]
    assert spans_of("00-not-a-span") == ["", OTHER]
    assert client.ask("POST", "/v1/jobs", {"task": "a", "traceparent": "x"}).status == 400


def test_grpc_takes_the_metadata_of_a_call_or_the_field_of_a_job(grpc_port):
    """A client in another language sends what its OpenTelemetry library adds to each call."""
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        add = channel.unary_unary(
            "/holdfast.v1.Queue/Add",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=message("AddReply").FromString,
        )
        jobs = [{"task": "a"}, {"task": "b", "traceparent": OTHER}]
        reply = add(message("AddRequest")(jobs=jobs), metadata=(("traceparent", PARENT),))

    with holdfast.connect(f"grpc://127.0.0.1:{grpc_port}") as queue:
        assert [queue.get(job_id).traceparent for job_id in reply.job_ids] == [PARENT, OTHER]


def test_a_queue_over_grpc_sends_its_span_and_gets_it_with_the_job(grpc_port, spans, tracer):
    with holdfast.connect(f"grpc://127.0.0.1:{grpc_port}") as queue:
        queue.task(name="far")(lambda: None)
        with tracer.start_as_current_span("request"):
            queue.add("far")
        for job in queue.claim(["far"]):
            job.run()

    assert trace_of(spans.one("run far")) == trace_of(spans.one("add far"))


def test_show_and_the_dashboard_name_the_trace(client, tmp_path):
    store = str(tmp_path / "jobs.db")
    job_id = client.post("/v1/jobs", {"task": "resize"}, traceparent=PARENT).json["id"]
    page = client.get(f"/jobs/{job_id}").body.decode()
    assert TRACE_ID in page

    with holdfast.connect(store) as queue:
        job = queue._add_one(c.NewJob(task="resize", traceparent=PARENT))
    shell = Shell(tmp_path)
    assert TRACE_ID in shell.run("--store", store, "show", job.id).out
    assert shell.run("--store", store, "show", job.id, "--json").record["trace_id"] == TRACE_ID
