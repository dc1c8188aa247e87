"""Header blocks: round trips, looking into raw ones, and no way to smuggle a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.wire import (
    Headers,
    add_header,
    encode_headers,
    header_value,
    parse_headers,
    remove_header,
    status_block,
    status_of,
)
from headrace.wire.headers import says_nobody

NAMES = st.text(
    st.characters(min_codepoint=33, exclude_characters=":\x7f", exclude_categories=["Cs"]),
    min_size=1,
    max_size=8,
)
ANY_BYTES = st.binary(max_size=12).map(lambda raw: raw.translate(None, b"\r\n").strip(b" \t"))
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12).map(
        lambda text: text.strip(" \t")
    ),
    ANY_BYTES.map(lambda raw: raw.decode(errors="surrogateescape")),
)
PAIRS = st.lists(st.tuples(NAMES | st.sampled_from(["A", "B"]), VALUES), max_size=6)


@given(
    pairs=PAIRS,
    status=st.none() | st.integers(100, 999),
    description=st.from_regex(r"([A-Za-z]+ ?){0,3}", fullmatch=True).map(str.strip),
)
def test_headers_come_back_as_they_were_encoded(
    pairs: list[tuple[str, str]], status: int | None, description: str
) -> None:
    block = encode_headers(pairs, status, description)
    headers = parse_headers(block)
    assert list(headers.items()) == pairs
    assert headers.status == status_of(block) == status
    assert headers.description == (description if status else "")
    assert encode_headers(headers.items(), headers.status, headers.description) == block
    for name, value in dict(reversed(pairs)).items():  # the first of each name wins
        raw = header_value(block, name.encode(errors="surrogateescape"))
        assert raw == value.encode(errors="surrogateescape")


@given(block=st.binary(max_size=60) | st.binary(max_size=60).map(lambda b: b"NATS/1.0\r\n" + b))
def test_any_block_is_parsed_or_refused(block: bytes) -> None:
    try:
        headers = parse_headers(block)
    except ProtocolError:
        return
    for name in headers:
        assert header_value(block, name.encode(errors="surrogateescape")) is not None


def test_lookups_are_exact_and_ordered() -> None:
    headers = parse_headers(b"NATS/1.0\r\nA: 1\r\nB:2\r\nA:  3 \r\n\r\n")
    assert headers.get("A") == headers["A"] == "1"
    assert headers.get_all("A") == ["1", "3"]
    assert headers.get("a") is None
    assert headers.get("a", "x") == "x"
    assert list(headers) == ["A", "B"]
    assert len(headers) == 3
    assert "B" in headers
    assert "b" not in headers
    assert headers == Headers([("A", "1"), ("B", "2"), ("A", "3")])
    assert hash(headers) == hash(Headers([("A", "1"), ("B", "2"), ("A", "3")]))
    assert headers != Headers([("A", "1"), ("B", "2"), ("A", "3")], status=100)
    with pytest.raises(KeyError):
        headers["a"]


def test_nobody_listens_where_a_status_says_so_in_place_of_an_answer() -> None:
    assert says_nobody(b"NATS/1.0 503\r\n\r\n", b"")
    assert not says_nobody(b"NATS/1.0 503 Busy\r\n\r\n", b"later")
    assert not says_nobody(b"NATS/1.0 404\r\n\r\n", b"")
    assert not says_nobody(b"", b"")


def test_no_block_is_no_headers() -> None:
    assert not parse_headers(b"")
    assert not parse_headers(b"NATS/1.0\r\n\r\n")
    assert parse_headers(b"NATS/1.0 503\r\n\r\n")


@pytest.mark.parametrize(
    ("block", "status", "description"),
    [
        (b"NATS/1.0 503\r\n\r\n", 503, ""),
        (
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\n\r\n",
            408,
            "Request Timeout",
        ),
        (b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", 100, "Idle Heartbeat"),
        (b"NATS/1.0   404   No Messages  \r\n\r\n", 404, "No Messages"),
    ],
)
def test_status_lines(block: bytes, status: int, description: str) -> None:
    headers = parse_headers(block)
    assert (headers.status, headers.description) == (status, description)


def test_a_status_block_is_what_nats_server_sends() -> None:
    pairs = [("Nats-Pending-Messages", "1"), ("Nats-Pending-Bytes", "0")]
    assert status_block(408, "Request Timeout", pairs) == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )
    assert status_block(503, "") == b"NATS/1.0 503\r\n\r\n"


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.0\r\nA: 1\r\n",
        b"NATS/1.0\r\nA 1\r\n\r\n",
        b"NATS/1.0\r\n: 1\r\n\r\n",
        b"NATS/1.0\r\nA : 1\r\n\r\n",
        b"NATS/1.0\r\n\r\nA: 1\r\n\r\n",
        b"NATS/1.0 20\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_malformed_blocks_are_refused(block: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"expected|does not end"):
        parse_headers(block)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A\r\nB", "1"),
        ("A", "1\r\nB: 2"),
        ("A", "1\n"),
        ("A:", "1"),
        ("", "1"),
        ("A B", "1"),
        ("A\ud800", "1"),
        ("A", "\udfff"),
    ],
)
def test_a_header_cannot_smuggle_a_line(name: str, value: str) -> None:
    with pytest.raises(ProtocolError, match="accepted is"):
        encode_headers([(name, value)])


def test_a_status_cannot_smuggle_a_line() -> None:
    with pytest.raises(ProtocolError, match="one line"):
        encode_headers([], 503, "a\r\nB: 1")
    with pytest.raises(ProtocolError, match="three digits"):
        encode_headers([], 99)


def test_a_raw_value_is_found_at_the_start_of_a_line_only() -> None:
    block = b"NATS/1.0\r\nX: Msg-Id: no\r\nNats-Msg-Id: yes \r\nEmpty:\r\n\r\n"
    assert header_value(block, b"Msg-Id") is None
    assert header_value(block, b"Nats-Msg-Id") == b"yes"
    assert header_value(block, b"nats-msg-id") is None
    assert header_value(block, b"Empty") == b""
    assert header_value(b"", b"Empty") is None


def test_a_line_is_added_to_and_removed_from_a_raw_block() -> None:
    block = add_header(b"", b"A", b"1")
    assert block == b"NATS/1.0\r\nA: 1\r\n\r\n"
    block = add_header(block, b"B", b"2")
    block = add_header(block, b"A", b"3")
    assert block == b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n"
    assert remove_header(block, b"A") == b"NATS/1.0\r\nB: 2\r\n\r\n"
    assert remove_header(remove_header(block, b"A"), b"B") == b""
    assert remove_header(block, b"C") == block
    assert remove_header(b"", b"A") == b""


@given(pairs=PAIRS, name=NAMES, value=VALUES)
def test_adding_and_removing_agree_with_encoding(
    pairs: list[tuple[str, str]], name: str, value: str
) -> None:
    raw_name, raw_value = (t.encode(errors="surrogateescape") for t in (name, value))
    block = encode_headers(pairs)
    assert add_header(block, raw_name, raw_value) == encode_headers([*pairs, (name, value)])
    kept = [pair for pair in pairs if pair[0] != name]
    assert remove_header(block, raw_name) == (encode_headers(kept) if kept else b"")
