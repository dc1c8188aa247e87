from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.publish_headers import message_id, message_ids, read_headers


def block(*lines: str) -> bytes:
    return ("NATS/1.0\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n").encode()


def test_only_headers_of_the_server_are_read() -> None:
    found = read_headers(block("K: v", "Nats-Msg-Id:  one ", "Nats-TTL:5s"))
    assert found == {b"Nats-Msg-Id": b"one", b"Nats-TTL": b"5s"}


def test_names_are_compared_exactly() -> None:
    assert read_headers(block("nats-msg-id: one", "NATS-Msg-Id: two")) == {}


def test_the_first_of_repeated_headers_counts() -> None:
    assert read_headers(block("Nats-Msg-Id: one", "Nats-Msg-Id: two"))[b"Nats-Msg-Id"] == b"one"


def test_the_message_id_is_found_without_reading_the_rest() -> None:
    assert message_id(block("K: v", "Nats-Msg-Id: one")) == b"one"
    assert message_id(block("X-Nats-Msg-Id: one")) == b""
    assert message_id(b"") == b""


USUAL = st.from_regex(rb"[!-\xff]{1,5}", fullmatch=True).map(
    lambda name: b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % name
)
PIECES = st.sampled_from(
    [b"NATS/1.0\r\n", b"Nats-Msg-Id: ", b"\r\n", b"\0", b" ", b"a", b"A: b\r\n", b"\n", b"\x0b"]
)
ODD = st.lists(PIECES | USUAL, max_size=4).map(b"".join)


@given(st.lists(USUAL, min_size=1, max_size=6))
def test_ids_of_usual_blocks_are_found_together(blocks: list[bytes]) -> None:
    assert message_ids(blocks) == [message_id(block) for block in blocks]


@given(st.lists(USUAL | ODD, min_size=1, max_size=6))
def test_ids_are_found_together_only_if_no_block_has_anything_else(blocks: list[bytes]) -> None:
    found = message_ids(blocks)
    if found:
        usual = [b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % name for name in found]
        assert blocks == usual
        assert all(name and name.strip() == name and b"\n" not in name for name in found)
