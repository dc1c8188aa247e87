"""The parser: shapes, limits, errors, and one truth however the bytes are cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import msg
from headrace.errors import LimitExceededError, ProtocolError
from headrace.wire import (
    BAD,
    CONNECT,
    ERR,
    INFO,
    MSG,
    OK,
    PING,
    PONG,
    PUB,
    SUB,
    UNSUB,
    Frame,
    Parser,
    encode,
    encode_headers,
)
from headrace.wire import parser as parser_module

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"


def outcome(frames: list[Frame]) -> list[object]:
    """Frames with the error reduced to what a peer can see of it, so that they compare."""
    return [
        (BAD, type(frame[1]), frame[1].wire_text) if frame[0] == BAD else frame for frame in frames
    ]


def feed_all(parser: Parser, chunks: list[bytes]) -> list[object]:
    return [frame for chunk in chunks for frame in outcome(parser.feed(chunk))]


def bad(data: bytes, parser: Parser | None = None) -> ProtocolError:
    """The error that ends what a server reads."""
    parser = parser or Parser.for_server()
    frames = parser.feed(data)
    assert frames
    assert frames[-1][0] == BAD
    assert parser.feed(b"PING\r\n") == []
    error = frames[-1][1]
    assert isinstance(error, ProtocolError)
    return error


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b"PUB a.b 5\r\nhello\r\n", (PUB, b"a.b", b"", b"", b"hello")),
        (b"PUB a.b r.1 5\r\nhello\r\n", (PUB, b"a.b", b"r.1", b"", b"hello")),
        (b"PUB a 0\r\n\r\n", (PUB, b"a", b"", b"", b"")),
        (b"PUB a 4\r\n\r\n\r\n\r\n", (PUB, b"a", b"", b"", b"\r\n\r\n")),
        (b"HPUB a 18 20\r\n" + BLOCK + b"hi\r\n", (PUB, b"a", b"", BLOCK, b"hi")),
        (b"HPUB a r 18 18\r\n" + BLOCK + b"\r\n", (PUB, b"a", b"r", BLOCK, b"")),
        (b"HPUB a 0 2\r\nhi\r\n", (PUB, b"a", b"", b"", b"hi")),
        (b"SUB a.* 7\r\n", (SUB, b"a.*", b"", b"7")),
        (b"SUB a.> workers 7\r\n", (SUB, b"a.>", b"workers", b"7")),
        (b"UNSUB 7\r\n", (UNSUB, b"7", 0)),
        (b"UNSUB 7 12\r\n", (UNSUB, b"7", 12)),
        (b"UNSUB 7 soon\r\n", (UNSUB, b"7", 0)),
        (b'CONNECT {"verbose": false}\r\n', (CONNECT, b'{"verbose": false}')),
        (b"CONNECT{}\r\n", (CONNECT, b"{}")),
        (b"PING\r\n", (PING,)),
        (b"PONG\r\n", (PONG,)),
    ],
)
def test_a_server_reads_every_verb_of_clients(data: bytes, frame: Frame) -> None:
    assert Parser.for_server().feed(data) == [frame]


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b"MSG a.b 7 5\r\nhello\r\n", (MSG, b"a.b", b"7", b"", b"", b"hello")),
        (b"MSG a.b 7 r.1 5\r\nhello\r\n", (MSG, b"a.b", b"7", b"r.1", b"", b"hello")),
        (b"HMSG a 7 18 20\r\n" + BLOCK + b"hi\r\n", (MSG, b"a", b"7", b"", BLOCK, b"hi")),
        (b"HMSG a 7 r 18 18\r\n" + BLOCK + b"\r\n", (MSG, b"a", b"7", b"r", BLOCK, b"")),
        (b'INFO {"port":4222} \r\n', (INFO, b'{"port":4222}')),
        (b"+OK\r\n", (OK,)),
        (b"-ERR 'Stale Connection'\r\n", (ERR, "Stale Connection")),
        (b"-ERR no quotes\r\n", (ERR, "no quotes")),
        (b"-ERR 'it's'\r\n", (ERR, "it's")),
        (b"PING\r\n", (PING,)),
        (b"PONG\r\n", (PONG,)),
    ],
)
def test_a_client_reads_every_verb_of_servers(data: bytes, frame: Frame) -> None:
    assert Parser.for_client().feed(data) == [frame]


@pytest.mark.parametrize(
    "data",
    [
        b"pub a.b r 5\r\nhello\r\n",
        b"PuB a.b r 5\r\nhello\r\n",
        b"PUB\ta.b\tr\t5\r\nhello\r\n",
        b"PUB   a.b r \t 5  \r\nhello\r\n",
        b"PUB a.b r 5\nhello\r\n",
        b"PUB a.b r 000000005\r\nhello\r\n",
    ],
)
def test_a_line_may_be_written_in_every_way_that_nats_server_accepts(data: bytes) -> None:
    twice = Parser.for_server().feed(data * 2)
    assert twice == [(PUB, b"a.b", b"r", b"", b"hello")] * 2


def test_only_spaces_and_tabs_separate_arguments() -> None:
    frames = Parser.for_server().feed(b"PUB a\x0cb\xc2\xa0c 1\r\nx\r\n")
    assert frames == [(PUB, b"a\x0cb\xc2\xa0c", b"", b"", b"x")]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_may_be_fed_and_reused_at_once(kind: type) -> None:
    source = bytearray(b"PUB a 5\r\nhello\r\nPUB a 5\r\nhel")
    parser = Parser.for_server()
    frames = parser.feed(kind(source))
    source[:] = b"\0" * len(source)
    frames += parser.feed(kind(b"lo\r\n"))
    assert frames == [(PUB, b"a", b"", b"", b"hello")] * 2
    assert all(type(part) is bytes for frame in frames for part in frame[1:])


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\r\n",
        b"\n",
        b"PUB\r\n",
        b"PUBX a 1\r\n",
        b"MSG a 1 2\r\nhi\r\n",
        b"+OK\r\n",
        b"\x16\x03\x01",
        b"PUB a 2\r\nhi\n\n",
        b"PUB a 2\r\nhiXX",
    ],
)
def test_what_is_no_operation_is_named_so(data: bytes) -> None:
    assert bad(data).wire_text == "Unknown Protocol Operation"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PUB \r\n", "0 arguments, 2 or 3 are accepted"),
        (b"PUB a\r\n", "1 arguments"),
        (b"PUB a b c 1\r\n", "4 arguments"),
        (b"PUB a x\r\n", "size is not a number"),
        (b"PUB a -1\r\n", "size is not a number"),
        (b"PUB a +1\r\n", "size is not a number"),
        (b"PUB a 1_0\r\n", "size is not a number"),
        (b"PUB a 0000000001\r\n", "size is not a number"),
        (b"HPUB a 1\r\n", "2 arguments, 3 or 4 are accepted"),
        (b"HPUB a 3 2\r\n", "header size"),
        (b"HPUB a x 2\r\n", "header size"),
        (b"HPUB a 1\r 2\r\n", "header size"),
        (b"SUB a\r\n", "1 arguments"),
        (b"SUB a b c d\r\n", "4 arguments"),
        (b"UNSUB 1 2 3\r\n", "3 arguments, 1 or 2 are accepted"),
    ],
)
def test_bad_arguments_say_what_is_wrong_and_where(data: bytes, said: str) -> None:
    Parser.for_server().feed(b"PUB a 1\r\nx\r\n")  # sizes seen before must not make a difference
    error = bad(data)
    assert error.wire_text == "Parser Error"
    assert said in str(error)
    assert data.split(b" ")[0].decode() in str(error)


def test_a_payload_over_the_limit_is_refused_before_it_is_sent() -> None:
    parser = Parser.for_server(max_payload=10)
    assert parser.feed(b"PUB a 10\r\n0123456789\r\n") == [(PUB, b"a", b"", b"", b"0123456789")]
    error = bad(b"PUB a 11\r\n", parser)
    assert isinstance(error, LimitExceededError)
    assert error.wire_text == "Maximum Payload Violation"
    assert "11 bytes" in str(error)
    assert "10" in str(error)


def test_the_limit_counts_headers_too() -> None:
    wire = encode.pub(b"a", b"", BLOCK, b"hi")
    assert outcome(Parser.for_server(max_payload=20).feed(wire))[0][0] == PUB  # type: ignore[index]
    assert bad(wire, Parser.for_server(max_payload=19)).wire_text == "Maximum Payload Violation"


def test_the_payload_limit_may_change_on_the_way() -> None:
    parser = Parser.for_client(max_payload=1)
    parser.max_payload = 5
    assert parser.feed(b"MSG a 1 5\r\nhello\r\n")[0][0] == MSG
    parser.max_payload = 4
    assert parser.feed(b"MSG a 1 5\r\nhello\r\n")[0][0] == BAD


def test_the_line_limit_counts_arguments_only() -> None:
    longest = b"a" * (4096 - 2)
    assert Parser.for_server().feed(b"PUB %b 0\r\n\r\n" % longest) == [
        (PUB, longest, b"", b"", b"")
    ]
    error = bad(b"PUB a%b 0\r\n\r\n" % longest)
    assert isinstance(error, LimitExceededError)
    assert error.wire_text == "maximum control line exceeded"
    assert "4096" in str(error)


def test_a_line_that_never_ends_is_refused_in_time() -> None:
    parser = Parser.for_server(max_control_line=100)
    assert parser.feed(b"PUB " + b"a" * 104) == []
    assert parser.feed(b"a")[-1][1].wire_text == "maximum control line exceeded"
    assert parser.held_bytes == 0


def test_frames_before_an_error_are_delivered() -> None:
    frames = Parser.for_server().feed(b"PING\r\nPUB a 1\r\nx\r\nNONSENSE\r\nPING\r\n")
    assert [frame[0] for frame in frames] == [PING, PUB, BAD]


# --- one truth however it is cut ------------------------------------------------------------------

WORDS = st.binary(min_size=1, max_size=12).filter(lambda b: not set(b) & set(b" \t\r\n"))
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
OPTIONAL = st.just(b"") | WORDS
PAYLOADS = st.binary(max_size=40)
BLOCKS = st.just(b"") | st.lists(
    st.tuples(st.from_regex(r"[A-Za-z-]{1,8}", fullmatch=True), TEXTS), max_size=3
).map(encode_headers)
ONE_LINE = (
    st.binary(min_size=1, max_size=20)
    .filter(lambda b: not set(b) & set(b"\r\n"))
    .map(lambda b: b"{%b}" % b)
)
BOTH = st.sampled_from([(PING,), (PONG,)])
CLIENT_FRAMES = st.one_of(
    st.tuples(st.just(PUB), WORDS, OPTIONAL, BLOCKS, PAYLOADS),
    st.tuples(st.just(SUB), WORDS, OPTIONAL, WORDS),
    st.tuples(st.just(UNSUB), WORDS, st.integers(0, 999_999_999)),
    st.tuples(st.just(CONNECT), ONE_LINE),
    BOTH,
)
SERVER_FRAMES = st.one_of(
    st.tuples(st.just(MSG), WORDS, WORDS, OPTIONAL, BLOCKS, PAYLOADS),
    st.tuples(st.just(INFO), ONE_LINE),
    st.tuples(st.just(ERR), TEXTS.map(lambda text: " ".join(text.splitlines()))),
    st.just((OK,)),
    BOTH,
)
ENCODERS: dict[bytes, Any] = {
    PUB: encode.pub,
    SUB: encode.sub,
    UNSUB: encode.unsub,
    CONNECT: encode.connect,
    MSG: msg,
    INFO: encode.info,
    OK: encode.ok,
    ERR: encode.err,
    PING: encode.ping,
    PONG: encode.pong,
}
MAKERS = {"server": Parser.for_server, "client": Parser.for_client}


def encoded(frames: list[Frame]) -> bytes:
    return b"".join(ENCODERS[frame[0]](*frame[1:]) for frame in frames)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[a:b] for a, b in pairwise(marks)]


def ways(data: bytes, cuts: list[int]) -> list[list[bytes]]:
    return [[data], cut(data, cuts), [data[at : at + 1] for at in range(len(data))]]


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@pytest.mark.parametrize(
    ("side", "strategy"), [("server", CLIENT_FRAMES), ("client", SERVER_FRAMES)]
)
@given(data=st.data(), cuts=CUTS)
def test_frames_come_back_whole_split_and_byte_by_byte(
    side: str, strategy: st.SearchStrategy[Frame], data: st.DataObject, cuts: list[int]
) -> None:
    frames = data.draw(st.lists(strategy, max_size=8))
    for chunks in ways(encoded(frames), cuts):
        parser = MAKERS[side]()
        assert feed_all(parser, chunks) == frames
        assert parser.held_bytes == 0
        assert parser.message_bytes == message_bytes(frames)


@given(
    frames=st.lists(CLIENT_FRAMES | st.just((PUB, b"a", b"", b"", b"x" * 3000)), max_size=30),
    cuts=CUTS,
    most=st.integers(1, 9) | st.just(1 << 20),
    apart=st.sampled_from([1, 1, 1000]),
)
def test_what_is_left_to_the_next_call_comes_by_it_and_frames_are_completed_apart(
    frames: list[Frame], cuts: list[int], most: int, apart: int
) -> None:
    parser = Parser.for_server()
    parser.frames_max = most
    found: list[Frame] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser_module, "_APART_BYTES_MIN", apart)
        for chunk in cut(encoded(frames), cuts):
            found += parser.feed(chunk)
            while parser.is_behind:
                more = parser.feed(b"")
                assert more or not parser.is_behind
                found += more
    assert found == frames
    assert parser.held_bytes == 0


def message_bytes(frames: Sequence[Any]) -> int:
    """Of header blocks and payloads."""
    return sum(len(f[-2]) + len(f[-1]) for f in frames if f[0] in (PUB, MSG))


@given(sizes=st.lists(st.integers(0, 30) | st.just(5), max_size=60), cuts=CUTS)
def test_the_bytes_of_messages_are_counted_whichever_way_they_are_read(
    sizes: list[int], cuts: list[int]
) -> None:
    block = encode_headers([("a", "b")])
    data = b"".join(
        encode.pub(b"a", b"", block if size == 7 else b"", bytes(size)) for size in sizes
    )
    for chunks in ways(data + b"NONSENSE\r\n", cuts):
        parser = Parser.for_server()
        got = feed_all(parser, chunks)
        assert got[-1][0] == BAD  # type: ignore[index]
        assert parser.message_bytes == sum(sizes) + len(block) * sizes.count(7)


NEARLY = st.lists(
    st.sampled_from(
        b"PUB |pub\t|HPUB |MSG |HMSG |SUB |UNSUB |CONNECT |INFO|PING|PONG|+OK|-ERR |"
        b"\r\n|\n|\r| |\t|a.b|0|1|2|5|12|17|999999999|hello|{}|'|\0|NATS/1.0\r\n\r\n".split(b"|")
    )
    | st.binary(max_size=3),
    max_size=40,
).map(b"".join)


@pytest.mark.parametrize("side", ["server", "client"])
@given(data=NEARLY | st.binary(max_size=200), cuts=CUTS)
def test_garbage_never_raises_and_reads_the_same_however_it_is_cut(
    side: str, data: bytes, cuts: list[int]
) -> None:
    expected = None
    for chunks in ways(data, cuts):
        parser = MAKERS[side](max_payload=64, max_control_line=40)
        got: list[object] = []
        for chunk in chunks:
            got += outcome(parser.feed(chunk))
            assert parser.held_bytes <= 64 + 40 + len(b"CONNECT \r\n\r\n") + len(chunk)
        assert expected is None or got == expected
        assert all(frame[0] != BAD for frame in got[:-1])  # type: ignore[index]
        assert parser.message_bytes == message_bytes(got)
        expected = got


def test_a_payload_in_many_chunks_is_looked_at_only_when_it_is_whole() -> None:
    looked = 0

    class Counting(Parser):
        __slots__ = ()

        def _scan(self, buf: bytes, pos: int, frames: list[Frame]) -> int:
            nonlocal looked
            looked += 1
            return super()._scan(buf, pos, frames)

    payload = bytes(1024 * 1024)
    wire = encode.pub(b"a", b"", b"", payload)
    parser = Counting.for_server()
    chunks = [wire[at : at + 256] for at in range(0, len(wire), 256)]
    assert feed_all(parser, chunks) == [(PUB, b"a", b"", b"", payload)]
    assert looked == 2
