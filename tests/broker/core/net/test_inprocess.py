"""A session of frames says what a session of bytes says, whatever it is told."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.auth.authentication import User, UserAuthentication
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.broker.store.storage.memory import MemoryStorage
from headrace.clock import ManualClock
from headrace.subjects import SubjectFilter
from headrace.wire import Parser, encode
from headrace.wire.frames import PUB, Frame
from headrace.wire.inprocess import Chunk, FrameBatch, PublishRun
from jetstream_world import HeldStorage

HELLO = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
    b'"user":"u","pass":"p"}\r\n'
)
STREAM = b'{"name":"S","subjects":["s.>"],"storage":"memory","num_replicas":1,"max_msgs":50}'
CONSUMER = (
    b'{"stream_name":"S","config":{"durable_name":"c","ack_policy":"explicit","max_deliver":-1}}'
)
SETUP = encode.pub(b"$JS.API.STREAM.CREATE.S", b"", b"", STREAM) + encode.pub(
    b"$JS.API.CONSUMER.DURABLE.CREATE.S.c", b"", b"", CONSUMER
)


def said(hub: Hub, session: Session) -> list[Frame]:
    """What the client heard, as frames."""
    parser = Parser.for_client()
    frames: list[Frame] = []
    hub.end_of_tick()
    hub.end_of_tick()
    parts: list[Any] = session.take_output()
    for part in parts:
        frames += parser.feed(part) if isinstance(part, bytes) else [part]
    return frames


def world(kind: type[Session], permissions: Permissions | None = None) -> tuple[Hub, Session]:
    clock = ManualClock()
    authenticator = UserAuthentication([User("u", "p", permissions=permissions)])
    hub = Hub(clock, random.Random(1), authenticator=authenticator)
    hub.start_jetstream(MemoryStorage())
    session = hub.connect(Peer(), kind)
    session.receive(
        HELLO + SETUP + b"SUB s.> x\r\nUNSUB x 1\r\n" + encode.pub(b"s.0", b"", b"", b"")
    )
    assert [frame[1] for frame in said(hub, session)[1:]] == [b"s.0"]
    return hub, session


acks = [b"$JS.ACK.S.c.1.%d.%d.1.0" % (n, n) for n in (1, 2, 3)]
odd_acks = [b"$JS.ACK.S.c.1.1", b"$JS.ACK.S.other.1.1.1.1.0", b"$JS.ACK.S.c.x.y.z.1.0"]
subjects = st.sampled_from([b"a", b"b.c", b"s.a", b"s.b", b"_I.1", b"_I.2", *acks, *odd_acks])
publishes = st.builds(
    lambda subject, reply, headers, payload: (PUB, subject, reply, headers, payload),
    subjects,
    st.sampled_from([b"", b"_I.1", b"_I.2", b"$JS.ACK.S.c.1.2.2.1.0"]),
    st.sampled_from([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.sampled_from([b"", b"+ACK", b"-NAK", b"x"]),
)
runs = st.builds(
    lambda publish, reply, count: [(PUB, publish[1], reply, b"", publish[4])] * count,
    publishes,
    st.sampled_from([b"", b"_I.1"]),
    st.integers(2, 4),
)
lines = st.sampled_from(
    [
        b"SUB a 1\r\n",
        b"SUB b.* 2\r\n",
        b"SUB _I.* 3\r\n",
        b"SUB _I.* 3\r\nUNSUB 3 4\r\n",
        b"SUB $JS.ACK.> 4\r\n",
        b"SUB $JS.ACK.S.c.*.2.> 5\r\n",
        b"SUB s.a q 6\r\n",
        b"UNSUB 1\r\n",
        b"UNSUB 4\r\n",
        b"UNSUB 5\r\n",
        b"PING\r\n",
        encode.pub(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"_I.9", b"", b'{"batch":3,"no_wait":true}'),
    ]
)
talk = st.lists(st.one_of(lines, runs, st.lists(publishes, min_size=1, max_size=4)), max_size=20)
guarded = Permissions(
    publish_deny=SubjectFilter([b"s.b"]), subscribe_deny=SubjectFilter([b"b.c", b"_I.2"])
)


@pytest.mark.parametrize("permissions", [None, guarded])
@given(talk)
def test_frames_and_bytes_have_the_same_effect(
    permissions: Permissions | None, steps: list[bytes | list[Frame]]
) -> None:
    near_hub, near = world(InProcessSession, permissions)
    far_hub, far = world(Session, permissions)
    assert isinstance(near, InProcessSession)
    for step in steps:
        if isinstance(step, bytes):
            chunk: Chunk = step
            data = step
        else:
            data = b"".join([encode.pub(*frame[1:]) for frame in step])
            chunk = FrameBatch(step, len(data))
        near.receive_chunks([chunk])
        far.receive(data)
        assert said(near_hub, near) == said(far_hub, far)
        assert near.in_messages == far.in_messages
        assert near.in_bytes == far.in_bytes
        assert near.out_messages == far.out_messages
        assert near.closed == far.closed


def test_an_acknowledgement_waits_for_the_disk() -> None:
    storage = HeldStorage()
    hub = Hub(ManualClock(), random.Random(1))
    hub.start_jetstream(storage)
    session = hub.connect(Peer(), InProcessSession)
    session.receive(HELLO + SETUP + b"SUB _I.* 1\r\n")
    said(hub, session)
    storage.hold = True
    batch = [(PUB, b"s.a", b"_I.%d" % n, b"", b"x") for n in range(3)]
    session.receive_chunks([FrameBatch(batch, 1)])
    assert said(hub, session) == []
    storage.release()
    assert [frame[1] for frame in said(hub, session)] == [b"_I.0", b"_I.1", b"_I.2"]


def test_a_batch_the_disk_refuses_is_refused_message_by_message() -> None:
    storage = HeldStorage()
    hub = Hub(ManualClock(), random.Random(1))
    hub.start_jetstream(storage)
    session = hub.connect(Peer(), InProcessSession)
    session.receive(HELLO + SETUP + b"SUB _I.* 1\r\n")
    said(hub, session)
    storage.hold = True
    storage.fail = OSError("no")
    session.receive_chunks([FrameBatch([(PUB, b"s.a", b"_I.1", b"", b"x")] * 2, 1)])
    said(hub, session)
    storage.release()
    assert [b'"error"' in frame[5] for frame in said(hub, session)] == [True, True]


def run_of(subject: bytes, first: int, payloads: list[bytes]) -> PublishRun:
    return PublishRun(subject, b"_I.", first, payloads, sum(map(len, payloads)))


def by_one(frames: list[Frame], run: PublishRun) -> list[Frame]:
    """What was said, as if the answer for all of a run were one for each."""
    out: list[Frame] = []
    for frame in frames:
        if frame[1] != run.reply:
            out.append(frame)
            continue
        last = msgspec.json.decode(frame[5])["seq"]
        for number, own in enumerate(run.frames):
            sequence = last - len(run.payloads) + 1 + number
            body = frame[5].replace(b'"seq":%d' % last, b'"seq":%d' % sequence)
            out.append((*frame[:1], own[2], *frame[2:5], body))
    return out


@pytest.mark.parametrize("permissions", [None, guarded])
@given(
    st.lists(
        st.one_of(
            lines.filter(lambda line: b"UNSUB 3 4" not in line),  # it counts answers
            st.tuples(
                st.sampled_from([b"a", b"b.c", b"s.a", b"s.b", b"$JS.ACK.S.c.1.1.1.1.0"]),
                st.integers(0, 9),
                st.lists(st.sampled_from([b"", b"+ACK", b"xyz"]), min_size=2, max_size=60),
            ),
        ),
        max_size=12,
    )
)
def test_a_run_and_its_frames_have_the_same_effect(
    permissions: Permissions | None, steps: list[bytes | tuple[bytes, int, list[bytes]]]
) -> None:
    near_hub, near = world(InProcessSession, permissions)
    far_hub, far = world(InProcessSession, permissions)
    assert isinstance(near, InProcessSession)
    assert isinstance(far, InProcessSession)
    for session in (near, far):
        session.receive(b"SUB _I.> all\r\n")
    for step in steps:
        if isinstance(step, bytes):
            near.receive(step)
            far.receive(step)
            assert said(near_hub, near) == said(far_hub, far)
        else:
            run = run_of(*step)
            near.receive_chunks([run])
            far.receive_chunks([FrameBatch(run.frames, len(run))])
            heard, expected = said(near_hub, near), said(far_hub, far)
            assert sorted(map(repr, by_one(heard, run))) == sorted(map(repr, expected))
        assert near.in_messages == far.in_messages
        assert near.in_bytes == far.in_bytes
        assert near.closed == far.closed


def test_a_run_the_disk_refuses_is_refused_as_one() -> None:
    storage = HeldStorage()
    hub = Hub(ManualClock(), random.Random(1))
    hub.start_jetstream(storage)
    session = hub.connect(Peer(), InProcessSession)
    session.receive(HELLO + SETUP + b"SUB _I.* 1\r\n")
    said(hub, session)
    storage.hold = True
    session.receive_chunks([run_of(b"s.a", 7, [b"x"] * 5)])
    assert said(hub, session) == []
    storage.fail = OSError("no")
    storage.release()
    assert [(frame[1], b'"error"' in frame[5]) for frame in said(hub, session)] == [
        (b"_I.7-5", True)
    ]


def test_frames_of_a_stranger_close_the_connection() -> None:
    hub = Hub(ManualClock(), random.Random(1), authenticator=UserAuthentication([User("u", "p")]))
    session = hub.connect(Peer(), InProcessSession)
    session.receive_chunks([FrameBatch([(PUB, b"a", b"", b"", b"x")] * 2, 1)])
    assert session.closed
