"""Every record that is sent comes back as it was, and the compiled description is that of the source."""

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core import errors
from holdfast.core.errors import BadInput, as_fault
from holdfast.core.job import Job, Unreadable
from holdfast.core.verbs import REPLIES
from holdfast.proto import conversion
from holdfast.proto.conversion import BY_FIELD, OWN, VERBS, Verb, decode_error, encode_error
from tests.house.source import ROOT
from tests.proto.records import names_of, values

KINDS = sorted(VERBS, key=lambda kind: kind.__name__)
SOURCE = ROOT / "proto" / "holdfast" / "v1" / "queue.proto"


def sent(verb: Verb, record: Any) -> Any:
    """A command or query as it arrives."""
    return verb.decode(verb.request.FromString(verb.request(**verb.encode(record)).SerializeToString()))


def replied(verb: Verb, reply: Any) -> Any:
    """A reply as it arrives."""
    return verb.decode_reply(
        verb.reply.FromString(verb.reply(**verb.encode_reply(reply)).SerializeToString())
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_asked_arrives_as_it_was(kind, data):
    """Every command and query, whatever stands in its fields."""
    record = data.draw(values(kind))
    # Never sent: the server knows what it has handed out.
    if kind in (c.Answer, c.Step):
        record = replace(record, held=None)
    if kind is c.AnswerAll:
        answers = tuple(replace(one, held=None) for one in record.answers)
        record = replace(record, answers=answers, held=())

    assert sent(VERBS[kind], record) == record


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_replied_arrives_as_it_was(kind, data):
    """Every reply; of one that is a text, "gone" is the only one there is."""
    reply = data.draw(values(REPLIES[kind]))
    if kind is c.Await and isinstance(reply, str):
        reply = "gone"

    found = replied(VERBS[kind], reply)
    if kind is c.AnswerAll:
        found = [one if isinstance(one, Job) else as_fault(one) for one in found]

    assert found == reply
    assert type(found) is type(reply)


def test_a_damaged_text_arrives_as_damaged():
    """It equals its bytes, so it is looked at by itself."""
    claimed = [c.Claimed(job=Job(id=1, task="t"), data=Unreadable(b"\xff"))]

    (found,) = replied(VERBS[c.Claim], claimed)

    assert type(found.data) is Unreadable


def test_every_field_of_a_message_is_one_of_its_record():
    """And the other way round, but for those that are never sent, or are for other languages only."""
    found = []
    for (kind, name), _ in list(conversion._made.items()):
        if not isinstance(kind, type):
            continue
        fields = {field.name for field in conversion.message(name).DESCRIPTOR.fields}
        wanted = {one for one in names_of(kind) if (kind.__name__, one) not in conversion.UNSENT}
        if fields - set(conversion.DERIVED.get(name, {})) != wanted:
            found.append((name, fields ^ wanted))

    assert found == []


def test_asks_and_replies_have_a_field_for_every_verb():
    """Under the same number, so that a client may tell one by the other."""
    asked = {field.name: field for field in conversion.message("Ask").DESCRIPTOR.oneofs[0].fields}
    answered = {field.name: field for field in conversion.message("Reply").DESCRIPTOR.oneofs[0].fields}

    assert asked.keys() == BY_FIELD.keys() == answered.keys() - {"error"}
    for name, verb in BY_FIELD.items():
        assert asked[name].message_type.name == verb.request.DESCRIPTOR.name
        assert answered[name].message_type.name == verb.reply.DESCRIPTOR.name
        assert asked[name].number == answered[name].number


def test_a_command_that_lacks_what_it_needs_is_refused():
    """An empty message is no answer; a number that no enum has is none either."""
    verb = VERBS[c.Answer]

    with pytest.raises(BadInput, match="hold is None, and must be given"):
        verb.decode(verb.request())
    with pytest.raises(BadInput, match="code is 99"):
        verb.decode(verb.request(hold={"job_id": 1}, code=99))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_empty_message_is_a_record_or_refused(kind):
    """Whatever is missing, nothing but `BadInput` is raised."""
    verb = VERBS[kind]
    found: Any = None

    try:
        found = verb.decode(verb.request())
    except BadInput as error:
        found = error

    assert isinstance(found, kind) or "must be given" in str(found)


def test_errors_arrive_as_they_were():
    """By their code and text; what is not ours tells no more than its type."""
    for kind in (errors.LeaseLost, errors.NotFound, errors.Unavailable, errors.HoldfastError):
        error = errors.error_of(kind.code, "why")
        found = decode_error(conversion.message("Error")(**encode_error(error)))
        assert (type(found), str(found)) == (kind, "why")

    assert "secret" not in encode_error(ValueError("secret"))["text"]


def test_the_compiled_description_is_current(tmp_path):
    """Run `make proto` after a change of the source."""
    compiled = tmp_path / "queue.binpb"
    command = ["-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={compiled}", SOURCE]
    subprocess.run([sys.executable, *map(str, command)], check=True)

    assert _read(compiled.read_bytes()) == _read(conversion.DESCRIPTION.read_bytes())


def _read(raw: bytes) -> Any:
    return descriptor_pb2.FileDescriptorSet.FromString(raw)


def test_every_call_of_the_service_is_a_verb_or_of_its_own():
    """Nothing is called that nobody answers."""
    assert {method.name for method in conversion.SERVICE.methods} == {v.name for v in VERBS.values()} | set(
        OWN
    )
