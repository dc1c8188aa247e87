"""Stored messages sent in one go are what they would be one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.output import COPY_BYTES_MAX
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.targets import answered
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.message import StoredRow

REPLY = b"$JS.ACK.100%%.c.1.%d.%d.%d.%d"  # a stream named 100%, in the template as it has to be

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


def heard(
    kind: type[Session], line: bytes, wants: bytes, rows: list[StoredRow], at_once: bool
) -> tuple[list[bytes], int]:
    """What a client hears that subscribes by ``line``, and what its subscription has counted."""
    hub = Hub(ManualClock(), random.Random(1))
    session = hub.connect(Peer(), kind)
    session.receive(b'CONNECT {"verbose":false,"headers":%b}\r\n' % wants)
    session.take_output()
    session.receive(line)
    target = hub.router.resolve(b"inbox")
    assert target is not None
    if at_once:
        target.send_stored(rows, REPLY, 7, 100)
    else:
        target.send_many(answered(rows, REPLY, 7, 100))
    parts = session.take_output()
    if kind is Session:
        parts = [b"".join(parts)]
    return parts, session.out_messages


@pytest.mark.parametrize("kind", [Session, InProcessSession])
@given(
    rows=stored,
    line=st.sampled_from(
        [
            b"SUB inbox 1\r\n",
            b"SUB inbox %d%%\r\n",
            b"SUB inbox 1\r\nUNSUB 1 3\r\n",
            b"SUB inbox 1\r\nSUB inbox 2\r\n",
        ]
    ),
    wants=st.sampled_from([b"true", b"true", b"false"]),
)
def test_at_once_as_one_by_one(
    kind: type[Session], rows: list[StoredRow], line: bytes, wants: bytes
) -> None:
    assert heard(kind, line, wants, rows, True) == heard(kind, line, wants, rows, False)


def test_the_reply_subject_counts_up_and_what_is_pending_down() -> None:
    rows: list[StoredRow] = [(3, b"a", b"", b"x", 9), (5, b"b", b"", b"", 10)]
    (data,), _ = heard(Session, b"SUB inbox 1\r\n", b"true", rows, True)
    assert data == (
        b"MSG a 1 $JS.ACK.100%.c.1.3.7.9.100 1\r\nx\r\nMSG b 1 $JS.ACK.100%.c.1.5.8.10.99 0\r\n\r\n"
    )
