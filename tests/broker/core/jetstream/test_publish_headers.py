from __future__ import annotations

from headrace.broker.core.jetstream.publish_headers import message_id, read_headers


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
