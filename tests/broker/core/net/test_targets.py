"""Stored messages sent in one go are what they would be one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.deliveries import Deliveries
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.output import COPY_BYTES_MAX, Output
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.broker.core.ports import Target
from headrace.clock import ManualClock
from headrace.message import StoredRow

PREFIX = b"$JS.ACK.100%.c.1."  # of a stream named 100%

payloads = st.one_of(st.binary(max_size=20), st.just(b"x" * (COPY_BYTES_MAX + 1)))
stored = st.lists(
    st.tuples(
        st.integers(1, 10**19),
        st.sampled_from([b"a", b"a.%d", b"b.c"]),
        st.sampled_from([b"", b"", b"NATS/1.0\r\nA: 1\r\n\r\n"]),
        payloads,
        st.integers(0, 2**62),
    ),
    min_size=1,
    max_size=8,
)

ALIKE = b"NATS/1.0\r\nA: 100%d\r\n\r\n"
listed = st.lists(  # as where keys are listed: all but subjects and numbers is the same
    st.tuples(
        st.integers(1, 10**19),
        st.sampled_from([b"a", b"a.%d"]),
        st.just(ALIKE),
        st.just(b""),
        st.integers(0, 2**62),
    ),
    min_size=2,
    max_size=8,
)


def heard(
    kind: type[Session],
    line: bytes,
    wants: bytes,
    send: Callable[[Target], None],
) -> tuple[list[bytes], int, int]:
    """What a client hears that subscribes by ``line``, and what its subscription has counted."""
    hub = Hub(ManualClock(), random.Random(1))
    session = hub.connect(Peer(), kind)
    session.receive(b'CONNECT {"verbose":false,"headers":%b}\r\n' % wants)
    session.take_output()
    session.receive(line)
    target = hub.router.resolve(b"inbox")
    assert target is not None
    send(target)
    parts = session.take_output()
    if kind is Session:
        parts = [b"".join(parts)]
    return parts, session.out_messages, session.output.payload_bytes


def _send_stored(deliveries: Deliveries, target: Target) -> None:
    target.send_stored(deliveries, PREFIX)


def one_by_one(rows: list[StoredRow], target: Target) -> None:
    for at, (seq, subject, headers, payload, time_ns) in enumerate(rows):
        reply = PREFIX + b"%d.%d.%d.%d" % (seq, 7 + at, time_ns, 100 - at)
        target.send(subject, reply, headers, payload)


LINES = st.sampled_from(
    [
        b"SUB inbox 1\r\n",
        b"SUB inbox %d%%\r\n",
        b"SUB inbox 1\r\nUNSUB 1 3\r\n",
        b"SUB inbox 1\r\nSUB inbox 2\r\n",
    ]
)
WANTS = st.sampled_from([b"true", b"true", b"false"])


@pytest.mark.parametrize("kind", [Session, InProcessSession])
@given(rows=stored | listed, line=LINES, wants=WANTS)
def test_at_once_as_one_by_one(
    kind: type[Session], rows: list[StoredRow], line: bytes, wants: bytes
) -> None:
    """What is made for one receiver is right for all others, whatever they understand."""
    deliveries = Deliveries(rows, 7, 100)
    alone = heard(kind, line, wants, partial(one_by_one, rows))
    for other in (wants, b"true", b"false", wants):
        together = heard(kind, line, other, partial(_send_stored, deliveries))
        if other == wants:
            assert together == alone


BLOCK = b"NATS/1.0\r\nA: 1\r\n\r\n"
answers = st.lists(st.tuples(st.just(b"inbox"), st.just(b""), st.just(BLOCK), payloads), max_size=8)
messages = st.lists(
    st.tuples(
        st.just(b"inbox"), st.sampled_from([b"", b"r"]), st.sampled_from([b"", BLOCK]), payloads
    ),
    max_size=8,
)


@pytest.mark.parametrize("kind", [Session, InProcessSession])
@given(listed=answers | messages, line=LINES, wants=WANTS)
def test_a_list_is_sent_as_what_comes_one_by_one(
    kind: type[Session], listed: list[tuple[bytes, bytes, bytes, bytes]], line: bytes, wants: bytes
) -> None:
    listed_at_once = heard(kind, line, wants, lambda target: target.send_many(listed))
    assert listed_at_once == heard(kind, line, wants, lambda target: target.send_many(iter(listed)))


def test_answers_to_one_client_are_written_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(Output, "write_frames", lambda self, frames: written.append(len(frames)))
    listed = [(b"inbox", b"", BLOCK, b"x")] * 5
    heard(Session, b"SUB inbox 1\r\n", b"true", lambda target: target.send_many(listed))
    assert written == [5]


def test_the_reply_subject_counts_up_and_what_is_pending_down() -> None:
    rows: list[StoredRow] = [(3, b"a", b"", b"x", 9), (5, b"b", b"", b"", 10)]
    (data,), _, _ = heard(
        Session, b"SUB inbox 1\r\n", b"true", partial(_send_stored, Deliveries(rows, 7, 100))
    )
    assert data == (
        b"MSG a 1 $JS.ACK.100%.c.1.3.7.9.100 1\r\nx\r\nMSG b 1 $JS.ACK.100%.c.1.5.8.10.99 0\r\n\r\n"
    )
