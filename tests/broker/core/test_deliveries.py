"""Frames made for one receiver serve those that have come as far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.deliveries import Deliveries
from headrace.message import StoredRow
from jetstream_world import World

PREFIX = b"$JS.ACK.S.C.1."
BLOCK = b"NATS/1.0\r\nA: 1\r\n\r\n"
RECEIVERS = [(b" 1 ", PREFIX), (b" 100% ", b"$JS.ACK.S%d.C2.1."), (b" 1 ", PREFIX)]
ROWS = st.lists(
    st.tuples(
        st.integers(1, 10**19),
        st.sampled_from([b"a", b"a.%d", b"b.c"]),
        st.sampled_from([b"", BLOCK]),
        st.sampled_from([b"", b"x", b"a 1 " + PREFIX + b"3", b" 1 " + PREFIX, PREFIX * 2]),
        st.integers(0, 2**62),
    ),
    min_size=1,
    max_size=6,
)


@given(rows=ROWS, has_headers=st.booleans())
def test_what_another_receiver_got_is_what_would_have_been_made(
    rows: list[StoredRow], has_headers: bool
) -> None:
    shared = Deliveries(rows, 7, 100)
    for sid, prefix in RECEIVERS:
        alone = Deliveries(rows, 7, 100).frames(sid, prefix, has_headers)
        assert b"".join(shared.frames(sid, prefix, has_headers)) == b"".join(alone)


def test_one_pass_makes_frames_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    publisher = world.client()
    publisher.stream()
    inboxes = []
    for number in range(4):
        follower = world.client()
        follower.consumer(f"C{number}", ack_policy="none")
        inboxes.append(follower.pull({"batch": 100, "expires": 10**10}, f"C{number}"))
    made, make = [], Deliveries._made

    def counted(self: Deliveries, middle: bytes, has_headers: bool) -> list[bytes]:
        made.append(middle)
        return make(self, middle, has_headers)

    monkeypatch.setattr(Deliveries, "_made", counted)
    publisher.send(b"PUB s.a 1\r\n1\r\nPUB s.b 1\r\n2\r\nPUB s.a 1\r\n3\r\n")
    world.settle()
    assert len(made) == 1
    for number, inbox in enumerate(inboxes):
        received = inbox.take()
        assert [each.payload for each in received] == [b"1", b"2", b"3"]
        assert [each.tokens for each in received] == [(1, 1, 1, 2), (1, 2, 2, 1), (1, 3, 3, 0)]
        assert all(each.reply.startswith(b"$JS.ACK.S.C%d.1." % number) for each in received)


def test_consumers_that_are_not_as_far_get_their_own() -> None:
    world = World()
    publisher = world.client()
    publisher.stream()
    publisher.put(b"s.a", b"0")
    late = world.client()
    late.consumer("LATE", ack_policy="none", deliver_policy="new")
    early = world.client()
    early.consumer("EARLY", ack_policy="none")
    asked = {"batch": 100, "expires": 10**10}
    first, second = early.pull(asked, "EARLY"), late.pull(asked, "LATE")
    publisher.send(b"PUB s.a 1\r\n1\r\nPUB s.a 1\r\n2\r\n")
    world.settle()
    assert [each.tokens for each in first.take()] == [(1, 1, 1, 0), (1, 2, 2, 1), (1, 3, 3, 0)]
    assert [each.tokens for each in second.take()] == [(1, 2, 1, 1), (1, 3, 2, 0)]
