"""What is said about a fast batch, read and written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.publish.fast_answers import (
    APPEND,
    PING,
    FastAnswer,
    Kind,
    is_unavailable,
    read_answer,
    with_reply,
)
from headrace.errors import JetStreamApiError, NoRespondersError, ProtocolError
from headrace.wire.encode import pub
from headrace.wire.frames import MSG
from headrace.wire.parser import Parser

PREFIX = b"_INBOX.x.500.fail."
REFUSAL = {"code": 400, "err_code": 10071, "description": "wrong last sequence: 2"}


def answer(document: Any, tail: str = "7.1.$FI", headers: bytes = b"") -> FastAnswer:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    found = read_answer(PREFIX, (MSG, PREFIX + tail.encode(), b"1", b"", headers, payload))
    assert found is not None
    return found


def test_the_kinds_are_told_apart_whatever_the_order_of_the_fields() -> None:
    assert answer({"type": "ack", "seq": 5, "msgs": 9}) == FastAnswer(Kind.FLOW, 7, APPEND, 5, 9)
    assert answer({"msgs": 9, "seq": 5, "type": "ack"}) == FastAnswer(Kind.FLOW, 7, APPEND, 5, 9)
    assert answer({"type": "gap", "last_seq": 3, "seq": 5}) == FastAnswer(Kind.GAP, 7, APPEND, 5)
    total = {"stream": "S", "seq": 90, "batch": "b", "count": 6, "domain": "hub"}
    assert answer(total) == FastAnswer(Kind.TOTAL, 7, APPEND, 90, stored=6)
    assert answer({"stream": "S", "seq": 90}, "1.0.$FI").kind is Kind.STORED


def test_refusals_come_in_two_kinds() -> None:
    one = answer({"type": "err", "seq": 3, "error": REFUSAL})
    assert (one.kind, one.seq) == (Kind.REFUSED, 3)
    assert isinstance(one.error, JetStreamApiError)
    other = answer({"error": REFUSAL, "stream": "S", "seq": 0}, "4.4.$FI")
    assert (other.kind, other.place, other.operation) == (Kind.ALONE, 4, PING)
    assert not is_unavailable(other.error)
    disabled = {"code": 400, "err_code": 10205, "description": "batch publish is disabled"}
    assert is_unavailable(answer({"error": disabled, "stream": "S", "seq": 0}).error)


def test_nobody_there_is_a_refusal() -> None:
    found = answer(b"", headers=b"NATS/1.0 503\r\n\r\n")
    assert found.kind is Kind.ALONE
    assert isinstance(found.error, NoRespondersError)


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"{}", b'{"seq":"x"}', b'{"type":7}', b'{"a":' * 5000]
)
def test_what_is_not_understood_is_a_refusal(payload: bytes) -> None:
    found = answer(payload)
    assert found.kind is Kind.ALONE
    assert isinstance(found.error, ProtocolError)


@pytest.mark.parametrize(
    "subject", [b"_INBOX.y.500.fail.1.0.$FI", PREFIX + b"1.0", PREFIX + b"a.b.$FI", b"_INBOX.x"]
)
def test_what_came_to_another_reply_is_none(subject: bytes) -> None:
    assert read_answer(PREFIX, (MSG, subject, b"1", b"", b"", b"{}")) is None


@given(
    subject=st.text("ab.", min_size=1).filter(lambda text: not set(text) <= {"."}),
    headers=st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    payload=st.binary(max_size=30),
    place=st.integers(1, 10**9),
)
def test_only_the_reply_changes(subject: str, headers: bytes, payload: bytes, place: int) -> None:
    command = pub(subject.encode(), b"?", headers, payload)
    (frame,) = Parser.for_server().feed(with_reply(command, PREFIX, place, APPEND))
    reply = b"%b%d.1.$FI" % (PREFIX, place)
    assert frame[1:] == (subject.encode(), reply, headers, payload)
