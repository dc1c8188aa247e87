"""What comes in one chunk is handled as if each of its frames had come alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.hub import Hub
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.broker.store.storage.memory import MemoryStorage
from headrace.clock import ManualClock
from headrace.wire import encode
from headrace.wire.frames import Frame

HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
HEARD = b"SUB _R.> 1\r\nSUB plain 2\r\nSUB s.heard 3\r\n"
STREAMS = [
    (
        b"S",
        b'{"name":"S","subjects":["s.>"],"storage":"memory","allow_batched":true,"allow_direct":true}',
    ),
    (b"T", b'{"name":"T","subjects":["t.>"],"storage":"memory","max_msg_size":70}'),
]

ASKED = [
    encode.pub(b"$JS.API.DIRECT.GET.S", b"_R.asked", b"", b'{"last_by_subj":"s.a"}'),
    encode.pub(b"$JS.API.DIRECT.GET.S", b"_R.asked", b"", b'{"multi_last":["s.a","s.b"]}'),
    encode.pub(b"plain", b"_R.asked", b"", b"x"),
    encode.pub(b"nobody", b"_R.asked", b"", b"x"),
]
ids = st.integers(0, 12).map(lambda number: b"NATS/1.0\r\nNats-Msg-Id: id.%02d\r\n\r\n" % number)
other = st.sampled_from(
    [
        b"",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\nA: b\r\nNats-Msg-Id: id.1\r\n\r\n",
        b"NATS/1.0\r\nNats-Expected-Last-Sequence: 2\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n",
    ]
)
subjects = st.sampled_from([b"s.a", b"s.b", b"s.heard", b"t.a", b"plain", b"nobody", b"s..a"])
replies = st.sampled_from(
    [b"_R.1", b"_R.2", b"", b"$JS.ACK.S.c.1.1.1.1.0", b"$x", b"_R.b.2.ok.1.0.$FI"]
)


def publishes(
    subject: st.SearchStrategy[bytes],
    reply: st.SearchStrategy[bytes],
    headers: st.SearchStrategy[bytes],
    least: int,
) -> st.SearchStrategy[list[bytes]]:
    one = st.builds(encode.pub, subject, reply, headers, st.just(b"x"))
    return st.lists(one, min_size=least, max_size=14)


alike = [
    publishes(st.just(b"s.a"), st.just(b"_R.1"), ids, 8),
    publishes(st.sampled_from([b"s.a", b"s.b"]), st.just(b"_R.1"), ids, 8),
    publishes(st.just(b"s.a"), st.just(b"_R.1"), st.just(b""), 8),
    publishes(st.just(b"t.a"), st.just(b"_R.1"), ids, 8),
]
chunks = st.one_of(
    *alike,
    publishes(subjects, replies, ids | other, 1),
    st.tuples(st.one_of(*alike), publishes(subjects, replies, ids | other, 1)).map(
        lambda parts: parts[0] + parts[1]
    ),
    st.tuples(
        st.lists(st.sampled_from(ASKED), max_size=2),
        st.one_of(*alike, publishes(subjects, replies, ids | other, 8)),
        st.sampled_from([[], [b"PING\r\n"], [b"SUB _R.> 4\r\n"]]),
    ).map(lambda parts: [*parts[0], *parts[1], *parts[2]]),
)


def world(heard: bytes = HEARD) -> tuple[Hub, Session]:
    hub = Hub(ManualClock(), random.Random(1))
    hub.start_jetstream(MemoryStorage())
    session = hub.connect(Peer())
    session.receive(HELLO + heard)
    for name, config in STREAMS:
        session.receive(encode.pub(b"$JS.API.STREAM.CREATE." + name, b"", b"", config))
    said(hub, session)
    return hub, session


def said(hub: Hub, session: Session) -> bytes:
    hub.end_of_tick()
    hub.end_of_tick()
    return b"".join(session.take_output())


@given(st.lists(chunks, max_size=5))
def test_a_chunk_says_what_its_frames_say_one_by_one(work: list[list[bytes]]) -> None:
    one, other = world(), world()
    for frames in work:
        for frame in frames:
            one[1].receive(frame)
        other[1].receive(b"".join(frames))
        assert said(*one) == said(*other)
        assert one[1].in_messages == other[1].in_messages
        assert one[1].in_bytes == other[1].in_bytes
    for name, _ in STREAMS:
        ask = encode.pub(b"$JS.API.STREAM.INFO." + name, b"_R.info", b"", b"")
        one[1].receive(ask)
        other[1].receive(ask)
    assert said(*one) == said(*other)


@pytest.mark.parametrize("behind", [b"", b"PING\r\n", encode.pub(b"plain", b"", b"", b"x")])
@pytest.mark.parametrize("before", [b"", *ASKED])
def test_messages_behind_a_request_or_before_a_line_are_taken_together(
    before: bytes, behind: bytes
) -> None:
    hub, session = world()
    taken: list[int] = []

    def one(*_: Any) -> None:
        taken.append(1)

    def many(frames: Sequence[Frame], _: Any) -> list[Frame]:
        taken.append(len(frames))
        return []

    session.router.add_sink(b"many.*", one, many)
    messages = [encode.pub(b"many.%d" % (number % 3), b"_R.1", b"", b"x") for number in range(20)]
    session.receive(b"".join([before, *messages, behind]))
    said(hub, session)
    assert taken == ([20] if behind in (b"", b"PING\r\n") else [1] * 20)


@pytest.mark.parametrize("odd", [b"", b"plain", b"t.a", b"s..a", b"s.", b"s", b"s.a.b"], ids=str)
def test_messages_of_one_head_are_looked_up_together_unless_one_goes_elsewhere(odd: bytes) -> None:
    names = [b"s.%d" % number for number in range(100)]
    names[50:50] = [odd] if odd else []
    frames = [encode.pub(name, b"_R.1", b"", b"x") for name in names]
    one, other = world(heard=b"SUB _R.> 1\r\n"), world(heard=b"SUB _R.> 1\r\n")
    for frame in frames:
        one[1].receive(frame)
    known = len(other[1].router.exact)
    other[1].receive(b"".join(frames))
    were_noted = len(other[1].router.exact) - known
    assert said(*one) == said(*other)
    assert one[1].in_messages == other[1].in_messages
    if not odd:
        assert were_noted < 5, "none but those by which it is seen that they go together"
