"""The framing: bytes in, requests out, whatever comes."""

import itertools
import os
import random
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import PORT_BODY_BYTES, PORT_HEAD_BYTES, PORT_HEADERS, PORT_LINES_BYTES
from holdfast.serve.bedrock.wire import Broken, Parser, Request, reply_bytes, unescaped

SEED = 20261115


def parsed(*pieces):
    """What comes out of these pieces."""
    parser = Parser()
    return [item for piece in pieces for item in parser.feed(piece)]


@pytest.mark.parametrize(
    ("raw", "verb", "headers"),
    [
        (b"Ping\n\n", "Ping", {}),
        (b"Ping\r\n\r\n", "Ping", {}),
        (b"Ping\r\n\n", "Ping", {}),
        (b"\r\n\n  \nPing / HTTP/1.1\n\n", "Ping", {}),
        (b"GetJob\tx\nname: foo\n\n", "GetJob", {"name": "foo"}),
        (b"GetJob\nNAME \t:  a : b \t\n\n", "GetJob", {"name": "a : b"}),
        (b"GetJob\nname: a\rother: b\n\rmore: c\n\n", "GetJob", {"name": "a", "other": "b", "more": "c"}),
        (b"GetJob\nname: a\r\rother: b\r\r c\n\n", "GetJob", {"name": "a", "other": "b c"}),
        (b"GetJob\nname: a\nNAME: b\n\n", "GetJob", {"name": "b"}),
        (b'X\ndata: {"a":\n  1,\n\t"b":2}\n\n', "X", {"data": '{"a": 1, "b":2}'}),
        (b"X\nempty:\n\n", "X", {"empty": ""}),
        (b"X\na: \\\\n\\n\\t\\b\\f\\r\\q\\u00e9\\\n\n", "X", {"a": "\\n\n\t\b\f\rq\u00e9\\"}),
        (b"X\na: \\ud83d\\ude00 \\u12\n\n", "X", {"a": "\U0001f600 u12"}),
        ("X\nname: é\n\n".encode(), "X", {"name": "é"}),
        (b"X\nContent-Length: 3\n\na\n\n", "X", {"content-length": "3"}),
        (
            b"X\nTransfer-Encoding: chunked\n\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            "X",
            {"transfer-encoding": "chunked"},
        ),
    ],
)
def test_a_request_is_the_same_however_it_is_cut(raw, verb, headers):
    """Whole, byte by byte, and with another right behind it."""
    expected = Request(verb, headers)

    assert parsed(raw) == [expected]
    assert parsed(*(bytes([byte]) for byte in raw)) == [expected]
    assert parsed(raw + b"Ping\n\n" + raw) == [expected, Request("Ping", {}), expected]


@pytest.mark.parametrize(
    ("raw", "status", "final"),
    [
        (b"X\nno colon\n\n", "400 Malformed header", False),
        (b"X\n: no name\n\n", "400 Malformed header", False),
        (b"X\n" + b"a: b\n" * (PORT_HEADERS + 1) + b"\n", "400 Malformed header", False),
        (b"X\nname: \xff\n\n", "400 Malformed text: not UTF-8", False),
        (b"X\nname: \\ud800\n\n", "400 Malformed text: not UTF-8", False),
        (b"X\nbad\nContent-Length: 5\n\n12345", "400 Malformed header", True),
        (
            b"X\nbad\nTransfer-Encoding: chunked\n\n8\r\nPing\n\nXX\r\n0\r\n\r\n",
            "400 Malformed header",
            True,
        ),
        (b"X\nContent-Length: many\n\n", "400 Malformed Content-Length", True),
        (b"X\nContent-Length: -1\n\n", "400 Malformed Content-Length", True),
        (b"X\nContent-Length: %d\n\n" % (PORT_BODY_BYTES + 1), "413 Request too large", True),
        (b"X\nTransfer-Encoding: chunked\n\nxyz\n", "400 Malformed chunk", True),
        (b"X\nTransfer-Encoding: chunked\n\n" + b"1" * 2_000, "400 Malformed chunk", True),
        (b"X\nTransfer-Encoding: chunked\n\nfffffffff\n", "413 Request too large", True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_request_is_told_in_its_place(raw, status, final):
    """The next is read all the same, unless nobody can tell where it begins."""
    found = parsed(raw + b"Ping\n\n")

    assert found == [Broken(status, final)] + ([] if final else [Request("Ping", {})])


ENDLESS = {
    "verb": (b"", b"x"),
    "header line": (b"X\nname: ", b"x"),
    "header line without a name": (b"X\n", b"x"),
    "continued header": (b"X\nname: a\n", b" x\n"),
    "header lines": (b"X\n", b"a: b\r\n"),
    "empty payload headers": (b"X\n", b"data:\n"),
    "lines that end in CR": (b"X\r", b"\r"),
    "name that begins like a payload": (b"X\ndata", b"x"),
    "header after a payload": (b"X\ndata: {}\nname: ", b"x"),
}


@pytest.mark.parametrize("piece_bytes", [500, 1 << 18], ids=["small", "large"])
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_that_never_ends_is_refused_after_64_kb(kind, piece_bytes):
    """Whatever it consists of: one line or many. Nothing of it is kept, and nothing after it is read."""
    start, more = ENDLESS[kind]
    parser, piece = Parser(), more * -(-piece_bytes // len(more))
    found, sent = list(parser.feed(start)), 0
    while not found:
        assert sent <= PORT_LINES_BYTES
        sent += len(piece)
        found = list(parser.feed(piece))

    assert PORT_LINES_BYTES == 64 * 1024
    assert (found, parser.size) == ([Broken("413 Request too large", final=True)], 0)
    assert list(parser.feed(b"Ping\n\n")) == []


@pytest.mark.parametrize(
    "name",
    [b"data", b"jobIDs \t", *(pytest.param(name, marks=pytest.mark.proof) for name in (b"Jobs", b"query"))],
)
def test_a_payload_may_be_longer_than_all_other_headers(name):
    """On one line or continued on others; but not endless."""
    value = b"x" * (3 * PORT_LINES_BYTES)
    for text in (value, value[:9] + b"\n " + value[9:]):
        (found,) = parsed(b"X\n" + name + b": " + text + b"\nname: foo\n\n")
        assert isinstance(found, Request)
        assert (len(found.headers) == 2, found.headers["name"]) == (True, "foo")

    parser, piece = Parser(), b"x" * (1 << 20)
    refused = list(parser.feed(b"X\n" + name + b": "))
    while not refused:
        refused = list(parser.feed(piece))
        assert parser.size <= PORT_HEAD_BYTES + len(piece)
    assert (refused, parser.size) == ([Broken("413 Request too large", final=True)], 0)


@given(st.integers(-3, 3), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n\r\n"]), st.data())
def test_the_limit_of_a_head_is_the_same_however_it_is_cut(excess, end, data):
    """To the byte, and with a payload before the last header."""
    start = b"X\ndata: " + b"y" * 500 + b"\n 1\nname: "
    raw = start + b"x" * (PORT_LINES_BYTES - len(b"X\ndata:name: ") - 1 + excess) + end + b"Ping\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, 20), max_size=4)))
    tail = len(raw) - 20
    pieces = [raw[a:b] for a, b in itertools.pairwise([0, *(tail + cut for cut in cuts), len(raw)])]

    whole = parsed(raw)

    assert len(whole) == (1 if isinstance(whole[0], Broken) else 2)
    assert parsed(*pieces) == whole


def test_an_endless_trailer_is_refused():
    """What follows the last chunk counts as body."""
    parser, line = Parser(), (b"a: " + b"b" * 500 + b"\r\n") * 1_000
    found, sent = list(parser.feed(b"X\nTransfer-Encoding: chunked\n\n0\r\n")), 0
    while not found:
        assert sent <= PORT_BODY_BYTES
        sent += len(line)
        found = list(parser.feed(line))

    assert found == [Broken("413 Request too large", final=True)]


def test_a_body_is_not_kept():
    """It belongs to no command."""
    parser = Parser()
    assert list(parser.feed(b"X\nContent-Length: 10000000\n\n")) == [
        Request("X", {"content-length": "10000000"})
    ]

    for _ in range(10):
        assert list(parser.feed(b"\n" * 1_000_000)) == []
        assert parser.size == 0

    assert list(parser.feed(b"Ping\n\n")) == [Request("Ping", {})]


def test_a_long_request_that_comes_in_small_pieces_is_read_once():
    """Not from its beginning with each piece."""
    parser, started = Parser(), time.process_time()
    list(parser.feed(b"X\ndata: "))
    for _ in range(10_000):
        assert list(parser.feed(b"x" * 500)) == []

    (found,) = parser.feed(b"\n\n")

    assert isinstance(found, Request)
    assert len(found.headers["data"]) == 5_000_000
    assert time.process_time() - started < 10


def test_a_value_of_very_many_lines_takes_no_longer_than_one_line():
    """A client without a token may send it, too, and all others wait for the parser."""
    began_s = time.process_time()

    (found,) = parsed(b"CreateJob\ndata: [\n" + b" 1,\n" * 500_000 + b" 2]\n\n")

    assert found.headers["data"] == "[ " + "1, " * 500_000 + "2]"
    assert time.process_time() - began_s < 10


@pytest.mark.parametrize("piece", [b"\n ", b"xy\n ", b"\r", b"\\u4e00ab"], ids=repr)
def test_no_value_takes_many_times_its_bytes(piece):
    """Whatever it is made of: empty lines, short lines, line breaks or characters."""
    raw = b"CreateJob\ndata: " + piece * (600_000 // len(piece)) + b"\n\n"
    tracemalloc.start()

    (found,) = parsed(raw)

    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, Request)
    assert most_bytes < 9 * len(raw)


def test_escapes_are_undone_wherever_a_long_value_is_divided():
    """Of two halves of a character neither is left alone."""
    for start in range(12):
        assert unescaped("x" * start + r"\ud83d\ude00" * 6_000) == "x" * start + "\U0001f600" * 6_000


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        (r'a"b\\c\nd\re\tf', 'a"b\\c\nd\re\tf'),
        (r"\\", "\\"),
        (r"\\n", r"\n"),
        ("\U0001f600é", "\U0001f600é"),
    ],
)
def test_what_clients_escape_is_read(written, text):
    assert unescaped(written) == text


def test_a_reply_ends_its_headers_with_its_length():
    """And has it always."""
    assert reply_bytes("200 OK") == b"200 OK\r\nContent-Length: 0\r\n\r\n"
    assert (
        reply_bytes("404 No", b"{}", (("Connection", "close"),))
        == b"404 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    )


# ── fuzz ─────────────────────────────────────────────────────────────────────────────────────────

SEEDS = [
    b'CreateJob\r\nname: foo\r\ndata: {"a":"\\\\u00e9\\n"}\r\nrepeat: finished, +1 minute\r\n\r\n',
    b"GetJob / HTTP/1.1\nname: www-prod/*\nConnection: wait\ntimeout: 1\n\n",
    b"FinishJob\njobID: 12345678901234567\ndata: {}\nContent-Length: 5\n\nabcde",
    b'CreateJobs\njobs: [{"name":"x",\n "data":{}}]\nTransfer-Encoding: chunked\n\n5\r\nabcde\r\n0\r\n\r\n',
    b"Ping\n\n",
]
SCRAPS = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b":",
    b"\\",
    b"\\u",
    b" ",
    b"\t",
    b"\0",
    b"\xff",
    b"\xc3",
    b"0",
    b"-1",
]
SCRAPS += [
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\n",
    b"{",
    b"[" * 50,
    b"\xf0\x9f",
    b"99999999999999999999",
]


def mutated(rng):
    """A request that somebody has put his hands on."""
    raw = bytearray(b"".join(rng.choices(SEEDS, k=rng.randint(1, 3))))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(raw) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            raw[at:at] = rng.choice(SCRAPS)
        elif kind == 1:
            del raw[at : at + rng.randint(1, 20)]
        elif kind == 2 and at < len(raw):
            raw[at] = rng.randrange(256)
        elif kind == 3:
            raw[at:at] = rng.randbytes(rng.randint(1, 10))
        else:
            other = rng.choice(SEEDS)
            raw[at:at] = other[: rng.randrange(len(other))]
    return bytes(raw)


def fuzz(count, seed):
    """Feed so many to parsers: whole or cut they say the same, requests and refusals, and keep no more."""
    rng = random.Random(seed)
    for number in range(count):
        raw, parser = mutated(rng), Parser()
        cut = rng.randrange(len(raw) + 1)
        found = [*parser.feed(raw[:cut]), *parser.feed(raw[cut:])]
        assert found == list(Parser().feed(raw)), (seed, number, raw)
        assert parser.size <= len(raw)
        assert all(isinstance(item, Request | Broken) for item in found)
        for item in found:
            if isinstance(item, Request):
                assert all(value.encode() is not None for value in (item.verb, *item.headers.values()))


def test_mutated_requests_never_break_the_parser():
    """Five thousand of them, the same each time."""
    fuzz(5_000, SEED)


@pytest.mark.proof
def test_many_more_mutated_requests_never_break_the_parser():
    """A million, new ones each time."""
    fuzz(1_000_000, int.from_bytes(os.urandom(8), "big"))
