"""Runs of one subject: whoever listens hears what it would hear message by message."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.broker.core.budget import Budget
from headrace.broker.core.hub import Hub
from headrace.broker.core.net import publishing
from headrace.broker.core.net.output import COPY_BYTES_MAX
from headrace.broker.core.net.session import Session
from headrace.broker.core.options import HubOptions
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.wire import encode
from sim.whole.coverage import Path, watched

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
TAKEN = {"run": Path(Session, "_run_over", lambda args, left: not left)}


class Listen(NamedTuple):
    """One subscription; ``most`` is where it ends by itself."""

    pattern: bytes
    queue: bytes = b""
    most: int = 0


class Client(NamedTuple):
    """A client: how it has connected, and to what it listens."""

    listens: list[Listen]
    headers: bool = True
    echo: bool = True


class Burst(NamedTuple):
    """Messages of one subject, said at once."""

    subject: bytes
    messages: int = 10
    reply: bytes = b""
    headers: bytes = b""
    size: int = 5
    uneven: bool = False


class Broker:
    """A hub and its clients, of which the first publishes."""

    def __init__(self, clients: list[Client], room: int) -> None:
        options = HubOptions(outbound_bytes_max=room)
        self.hub = Hub(ManualClock(), random.Random(7), options, None)
        self.sessions = [self._connect(client) for client in clients]
        self.heard = [b""] * len(clients)

    def _connect(self, client: Client) -> Session:
        session = self.hub.connect(Peer())
        told = f'"headers":{client.headers},"echo":{client.echo},"no_responders":{client.headers}'
        options = f'{{"verbose":false,"pedantic":false,{told}}}'.lower()
        session.receive(b"CONNECT " + options.encode() + b"\r\n")
        for sid, listen in enumerate(client.listens, 1):
            session.receive(b"SUB %b %b %d\r\n" % (listen.pattern, listen.queue, sid))
            if listen.most:
                session.receive(b"UNSUB %d %d\r\n" % (sid, listen.most))
        session.take_output()
        return session

    def tick(self) -> None:
        self.hub.end_of_tick()
        for number, session in enumerate(self.sessions):
            self.heard[number] += b"".join(session.take_output())

    def told(self) -> list[Any]:
        """What everybody has heard, and what is counted of it."""
        return [
            (
                heard,
                session.closed,
                session.close_reason,
                # Of a piece of input all is counted, also what comes behind the message that was too much.
                None if session.closed else session.in_messages,
                session.out_messages,
                session.output.payload_bytes,
                sorted(session.subscriptions),
            )
            for heard, session in zip(self.heard, self.sessions, strict=True)
        ]


def frames_of(burst: Burst) -> list[bytes]:
    sizes = [burst.size + (at % 3 if burst.uneven else 0) for at in range(burst.messages)]
    return [
        encode.pub(burst.subject, burst.reply, burst.headers, b"%d" % (at % 10) * size)
        for at, size in enumerate(sizes)
    ]


def compare(clients: list[Client], bursts: list[list[Burst]], room: int) -> Broker:
    """Say the same to two brokers, at once and message by message; returns the first."""
    at_once, one_by_one = Broker(clients, room), Broker(clients, room)
    for burst in bursts:
        frames = [frame for each in burst for frame in frames_of(each)]
        at_once.sessions[0].receive(b"".join(frames) + b"PING\r\n")
        for frame in [*frames, b"PING\r\n"]:
            one_by_one.sessions[0].receive(frame)
        at_once.tick()
        one_by_one.tick()
        if one_by_one.sessions[0].closed:
            # Who publishes was cut off in the middle: others hear what else was in the piece of input, too.
            assert at_once.told()[0] == one_by_one.told()[0]
            break
        assert at_once.told() == one_by_one.told()
    return at_once


subjects = st.sampled_from([b"a.b", b"a.c", b"d"])
listens = st.builds(
    Listen,
    st.sampled_from([b"a.b", b"a.*", b">", b"d", b"_R.>"]),
    st.sampled_from([b"", b"", b"q", b"r"]),
    st.sampled_from([0, 0, 0, 0, 7, 30]),
)
clients = st.builds(
    Client, st.lists(listens, max_size=2), st.sampled_from([True, True, True, False]), st.booleans()
)
bursts = st.builds(
    Burst,
    subjects,
    st.integers(1, 40),
    st.sampled_from([b"", b"", b"_R.1", b"$JS.ACK.s.c.1.1.1.1.0"]),
    st.sampled_from([b"", b"", HEADERS]),
    st.sampled_from([0, 5, 5, 200, COPY_BYTES_MAX + 1]),
    st.booleans(),
)
plainly = [Client([]), Client([Listen(b"a.b")]), Client([Listen(b"a.*")])]
in_queue = [Client([]), *(Client([Listen(b"a.b", b"q")]) for _ in range(3))]
ROOM = 1 << 26
rooms = st.sampled_from([ROOM, ROOM, 4_000])


def in_groups(clients: list[Client]) -> bool:
    """Whether some listen in queue groups.

    Who hears which message is chosen by chance, and for a whole run before it is delivered: a member that is
    cut off in its midst is chosen until its end.
    """
    return any(listen.queue for client in clients for listen in client.listens)


def test_everybody_hears_what_they_would_hear_message_by_message() -> None:
    with watched(TAKEN) as found:

        @example(plainly, [[Burst(b"a.b"), Burst(b"a.c")]], ROOM)
        @example(in_queue, [[Burst(b"a.b", 40)], [Burst(b"a.b", 9, headers=HEADERS)]], ROOM)
        @example(in_queue, [[Burst(b"a.b", 40, uneven=True)]], ROOM)
        @example(plainly, [[Burst(b"a.b", 40, uneven=True)]], ROOM)
        @example(plainly, [[Burst(b"a.b", 40, size=200)]], 4_000)
        @example([Client([Listen(b"a.b"), Listen(b"a.b")])], [[Burst(b"a.b", 11, size=200)]], 4_000)
        @example(
            [Client([Listen(b"a.b"), Listen(b"a.b")]), Client([Listen(b"a.b")])],
            [[Burst(b"a.b", 30, size=200)]],
            4_000,
        )
        @given(
            st.lists(clients, min_size=1, max_size=4),
            st.lists(st.lists(bursts, min_size=1, max_size=3), min_size=1, max_size=3),
            rooms,
        )
        def worlds(clients: list[Client], said: list[list[Burst]], room: int) -> None:
            compare(clients, said, ROOM if in_groups(clients) else room)

        worlds()
    assert found["run"] >= 4


@pytest.mark.parametrize(
    "burst",
    [
        Burst(b"a.b"),
        Burst(b"a.b", reply=b"_R.1"),
        Burst(b"a.b", headers=HEADERS),
        Burst(b"a.b", size=0),
        Burst(b"a.b", 400),
    ],
)
@pytest.mark.parametrize("world", [plainly, in_queue])
def test_a_run_is_delivered_as_a_block(world: list[Client], burst: Burst) -> None:
    with watched(TAKEN) as found:
        compare(world, [[burst]], ROOM)
    assert found["run"]


@pytest.mark.parametrize(
    ("world", "burst"),
    [
        (plainly, Burst(b"a.b", publishing.RUN_MIN - 1)),
        (plainly, Burst(b"d")),
        (plainly, Burst(b"a.b", reply=b"$JS.ACK.s.c.1.1.1.1.0")),
        (plainly, Burst(b"a.b", size=COPY_BYTES_MAX + 1)),
        ([*plainly, Client([Listen(b"a.b", most=5)])], Burst(b"a.b")),
        ([*plainly, Client([Listen(b"a.b")], headers=False)], Burst(b"a.b", headers=HEADERS)),
        ([*plainly, Client([Listen(b"a.b"), Listen(b">")])], Burst(b"a.b")),
        ([Client([Listen(b"a.b")], echo=False)], Burst(b"a.b", reply=b"_R.1")),
        ([Client([Listen(b"a.b", b"q")], echo=False), *in_queue[1:]], Burst(b"a.b")),
    ],
)
def test_what_is_out_of_the_ordinary_goes_message_by_message(
    world: list[Client], burst: Burst
) -> None:
    with watched(TAKEN) as found:
        compare(world, [[burst]], ROOM)
    assert not found["run"]


def test_each_message_for_a_queue_group_goes_to_one_member_by_chance() -> None:
    broker = compare(in_queue, [[Burst(b"a.b", 300)]], ROOM)
    counts = [session.out_messages for session in broker.sessions[1:]]
    assert sum(counts) == 300
    assert min(counts) > 60


def test_a_run_for_many_is_divided_so_that_the_turn_is_looked_at_between() -> None:
    """Whatever the turn has room for, everything is delivered, in order."""
    world = [Client([]), *(Client([Listen(b"a.b")]) for _ in range(300))]
    broker = Broker(world, ROOM)
    looks = 0

    def is_over() -> bool:
        nonlocal looks
        looks += 1
        return True

    budget: Budget = broker.hub.budget
    budget.is_over = is_over
    broker.sessions[0].receive(b"".join(frames_of(Burst(b"a.b", 200))))
    while broker.sessions[0].wants_slice:
        budget.begin()
        broker.sessions[0].go_on()
    broker.tick()
    assert looks > 200 * 300 // (2 * publishing.COPIES_MAX)
    assert set(broker.heard[2:]) == {broker.heard[1]}
    assert broker.heard[1].count(b"MSG a.b 1 5\r\n") == 200
