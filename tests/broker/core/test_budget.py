"""Turns of a session: what there is no time for is kept, in its order, and others are served meanwhile."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetstream_world
from headrace.broker.core.budget import Budget
from headrace.broker.core.hub import Hub
from headrace.broker.core.net import session_subscriptions
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.session_input import PARSED_FRAMES, PIECE_BYTES, PIECE_FRAMES
from headrace.broker.core.net.session_subscriptions import AT_ONCE, AT_ONCE_MAX
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.wire import Parser
from headrace.wire.frames import MSG, PUB, Frame
from headrace.wire.inprocess import Chunk, FrameBatch
from portions import portion

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
UNITS_PER_LINE = 8


class Rounds:
    """A hub whose sessions get a slice of so many units per turn, one after the other."""

    def __init__(self, looks: int, grain: int = 64, hub: Hub | None = None) -> None:
        self.hub = hub or Hub(ManualClock(), random.Random(1))
        self.looks = looks
        self.left = 0
        self.hub.budget.is_over = self._look
        self.hub.budget.grain = grain
        self.turns = 0

    def _look(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def connect(self, kind: type[Session] = Session) -> Session:
        session = self.hub.connect(Peer(), kind)
        session.take_output()
        self.slice(session, CONNECT)
        return session

    def slice(self, session: Session, chunk: bytes | None = None) -> None:
        """One turn of one session, which has just said something or has not."""
        self.left = self.looks
        self.hub.budget.begin()
        self.turns += 1
        if chunk is None:
            session.go_on()
        else:
            session.receive(chunk)

    def all_of(self, session: Session, chunk: bytes) -> None:
        """As many turns as it takes."""
        self.slice(session, chunk)
        while session.wants_slice:
            self.slice(session)

    def said(self, session: Session) -> bytes:
        self.hub.end_of_tick()
        return b"".join(session.take_output())


def test_others_are_served_between_two_slices_of_one_client() -> None:
    rounds = Rounds(looks=40)
    hostile, good = rounds.connect(), rounds.connect()
    count = 20_000
    chunk = b"".join(b"SUB a.%d %d\r\n" % (n, n) for n in range(count)) + b"PING\r\n"
    rounds.slice(hostile, chunk)
    taken = len(hostile.subscriptions)
    # A slice is 40 times 64 units, of which a line takes 8.
    assert 0 < taken <= 40 * 64 / UNITS_PER_LINE + 40
    assert hostile.holds_input
    assert hostile.wants_slice
    rounds.slice(good, b"PING\r\n")
    assert rounds.said(good) == b"PONG\r\n"
    assert rounds.said(hostile) == b""
    before = rounds.turns
    while hostile.wants_slice:
        kept, subscriptions = hostile.kept_bytes, len(hostile.subscriptions)
        assert kept <= len(chunk)
        rounds.slice(hostile)
        assert hostile.kept_bytes <= kept
        assert len(hostile.subscriptions) - subscriptions <= taken + 40
    assert rounds.turns - before >= count // (taken + 40)
    assert len(hostile.subscriptions) == count
    assert rounds.said(hostile) == b"PONG\r\n"
    assert not hostile.holds_input


def test_what_comes_while_something_is_kept_comes_after_it() -> None:
    rounds = Rounds(looks=1, grain=1)
    session = rounds.connect()
    rounds.slice(session, b"SUB a 1\r\nPUB a 1\r\n1\r\nPUB a 1\r\n2")
    assert session.wants_slice
    rounds.slice(session, b"\r\nPUB a 1\r\n3\r\nPI")
    rounds.all_of(session, b"NG\r\n")
    messages = b"".join(b"MSG a 1 1\r\n%d\r\n" % n for n in (1, 2, 3))
    assert rounds.said(session) == messages + b"PONG\r\n"


def test_a_call_of_the_api_may_be_all_of_a_slice() -> None:
    world = jetstream_world.World()
    client = world.client()
    call = b"PUB $JS.API.INFO r 0\r\n\r\n"
    client.send(b"SUB r 1\r\n")
    rounds = Rounds(looks=1, hub=world.hub)
    session = client.session
    rounds.slice(session, call * 3)
    world.hub.end_of_tick()
    assert b"".join(session.take_output()).count(b"MSG r") == 1
    rounds.slice(session)
    rounds.slice(session)
    assert b"".join(session.take_output()).count(b"MSG r") == 2
    assert not session.holds_input


def test_a_message_for_many_counts_as_many() -> None:
    rounds = Rounds(looks=1)
    listener, publisher = rounds.connect(), rounds.connect()
    rounds.all_of(listener, b"".join(b"SUB a %d\r\n" % n for n in range(1_000)))
    rounds.slice(publisher, b"PUB a 1\r\nx\r\n" * 3)
    assert rounds.said(listener).count(b"MSG a ") == 1_000
    rounds.slice(publisher)
    assert rounds.said(listener).count(b"MSG a ") == 1_000


def test_a_slice_of_a_publisher_ends_though_its_messages_go_together() -> None:
    world = jetstream_world.World()
    client = world.client()
    body = b'{"name":"S","subjects":["s"],"storage":"memory"}'
    client.send(b"PUB $JS.API.STREAM.CREATE.S 0 %d\r\n%b\r\n" % (len(body), body))
    rounds = Rounds(looks=1, hub=world.hub)
    publish = b"PUB s 10\r\n0123456789\r\n"
    rounds.slice(client.session, publish * 20_000)
    (stream,) = world.hub.engine.registry.streams.values()  # type: ignore[union-attr]
    taken = stream.store.last_seq
    assert 0 < taken < 10_000
    while client.session.wants_slice:
        rounds.slice(client.session)
    assert stream.store.last_seq == 20_000


def test_who_is_hung_up_on_is_not_heard_out() -> None:
    rounds = Rounds(looks=1, grain=1)
    session = rounds.connect()
    rounds.slice(session, b"PING\r\n" * 100 + b"PUB a 99999999\r\n" + b"PING\r\n" * 100)
    assert session.wants_slice
    session.close("Stale Connection")
    assert not session.holds_input
    assert session.kept_bytes == 0
    session.go_on()
    assert rounds.said(session).endswith(b"-ERR 'Stale Connection'\r\n")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The bytes and frames of each piece that is parsed."""
    pieces, feed = [], Parser.feed

    def counted(parser: Parser, data: bytes) -> list[Frame]:
        pieces.append((len(data), len(frames := feed(parser, data))))
        return frames

    monkeypatch.setattr(Parser, "feed", counted)
    return pieces


def test_short_lines_behind_large_payloads_are_not_parsed_all_at_once(
    parsed: list[tuple[int, int]],
) -> None:
    rounds = Rounds(looks=40)
    session = rounds.connect()
    large = b"PUB a 16384\r\n%b\r\n" % bytes(16_384)
    rounds.all_of(session, large)
    rounds.all_of(session, large * 15)
    assert parsed[-1] == (15 * len(large), 15)  # whole, and not copied
    del parsed[:]
    rounds.all_of(session, b"PING\r\n" * 40_000)
    assert parsed[0] == (240_000, PARSED_FRAMES)
    assert max(count for _, count in parsed) == PARSED_FRAMES
    assert rounds.said(session) == b"PONG\r\n" * 40_000


def test_no_more_short_frames_are_parsed_than_there_is_time_for_in_a_slice(
    parsed: list[tuple[int, int]],
) -> None:
    """Parsed and not handled they take ten times their bytes, of each client that waits."""
    rounds = Rounds(looks=40)
    session = rounds.connect()
    del parsed[:]
    subscribed = b"".join(b"SUB a.b.%d %d\r\n" % (n, n) for n in range(10_000, 30_000))
    rounds.all_of(session, subscribed)
    assert len(session.subscriptions) == 20_000
    assert max(count for _, count in parsed) <= PIECE_FRAMES
    assert len(parsed) < 1.2 * 20_000 / PIECE_FRAMES + 2  # nor many fewer
    del parsed[:]
    rounds.all_of(session, b"PUB a 300\r\n%b\r\n" % bytes(300) * 2_000)
    assert max(size for size, _ in parsed) == PIECE_BYTES


def test_frames_of_a_client_in_process_are_cut_like_bytes() -> None:
    rounds = Rounds(looks=2)
    session = rounds.connect(InProcessSession)
    assert isinstance(session, InProcessSession)
    frames = [(PUB, b"a", b"", b"", b"%d" % n) for n in range(5_000)]
    rounds.left = rounds.looks
    rounds.hub.budget.begin()
    chunks: list[Chunk] = [b"SUB a 1\r\n", FrameBatch(list(frames), 200_000), b"PING\r\n"]
    session.receive_chunks(chunks)
    assert session.wants_slice
    heard: list[object] = [*session.take_output()]
    assert 0 < len(heard) < 1_000
    while session.wants_slice:
        rounds.slice(session)
        heard += session.take_output()
    assert heard == [(MSG, b"a", b"1", b"", b"", b"%d" % n) for n in range(5_000)] + [b"PONG\r\n"]


def test_a_message_for_many_thousand_is_handed_over_in_parts() -> None:
    rounds = Rounds(looks=1)
    publisher = rounds.connect()
    listeners = [rounds.connect() for _ in range(4)]
    for listener in listeners:
        rounds.all_of(listener, b"".join(b"SUB a %d\r\n" % n for n in range(1_000)))
    rounds.slice(publisher, b"SUB a 1\r\nPUB a 1\r\n1\r\nPUB a 1\r\n2\r\nPING\r\n")
    heard = [rounds.said(listener) for listener in listeners]
    assert [each.count(b"MSG a") for each in heard] == [1_000, 24, 0, 0]
    assert publisher.wants_slice
    # Who leaves before its part comes gets nothing; who is hung up on neither.
    rounds.all_of(listeners[2], b"UNSUB 7\r\n")
    listeners[3].disconnected()
    while publisher.wants_slice:
        rounds.slice(publisher)
        for index, listener in enumerate(listeners):
            heard[index] += rounds.said(listener)
    counts = [each.count(b"MSG a") for each in heard]
    assert counts == [2_000, 2_000, 2 * 999, 0]
    assert b"MSG a 7 " not in heard[2]
    for each in heard[:2]:
        assert each.index(b"MSG a 5 1\r\n1\r\n") < each.index(b"MSG a 5 1\r\n2\r\n")
    own = rounds.said(publisher)
    assert own == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nPONG\r\n"
    assert publisher.in_messages == 2


def test_subscriptions_of_who_is_gone_leave_the_router_some_at_a_time() -> None:
    rounds = Rounds(looks=1 << 30)
    hub, count = rounds.hub, 5_000
    leaver, publisher, colleague = rounds.connect(), rounds.connect(), rounds.connect()
    lines = [b"SUB a.%d q %d\r\n" % (n, n) for n in range(count)]
    rounds.slice(leaver, b"".join(lines) + b"SUB r.* 9999999\r\n")
    rounds.slice(publisher, b"SUB _I 1\r\n")
    last = count - 1
    rounds.slice(colleague, b"SUB a.%d q 1\r\n" % last)
    leaver.disconnected()
    assert leaver.subscriptions == {}
    before = hub.router.subscriptions
    assert before >= count - AT_ONCE
    # Its place in a group is nobody's, and an inbox of it is no longer there.
    rounds.slice(publisher, b"PUB a.%d 1\r\nx\r\n" % last * 20)
    assert rounds.said(colleague).count(b"MSG a") == 20
    assert hub.router.resolve(b"r.1") is None
    # Who has few does not stand in that queue.
    small = rounds.connect()
    rounds.slice(small, b"SUB few 1\r\n")
    small.disconnected()
    assert not hub.router.has_interest(b"few")
    steps = 0
    while hub.leaving:
        left = hub.router.subscriptions
        assert hub.next_deadline_ns() is not None
        hub.run_timers()
        assert 0 < left - hub.router.subscriptions <= AT_ONCE
        steps += 1
    assert steps >= count // AT_ONCE - 1
    assert hub.router.subscriptions == 2
    assert leaver.take_output() == []


def test_the_more_have_gone_the_more_leave_the_router_at_once_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 2 * AT_ONCE
    assert most < AT_ONCE_MAX
    monkeypatch.setattr(session_subscriptions, "AT_ONCE_MAX", most)
    rounds = Rounds(looks=1 << 30)
    hub = rounds.hub
    leavers = [rounds.connect() for _ in range(3)]
    for leaver in leavers:
        rounds.slice(leaver, b"".join(b"SUB a.%d %d\r\n" % (n, n) for n in range(12_000)))
    for leaver in leavers:
        leaver.disconnected()
    removed = []
    while hub.leaving:
        left = hub.router.subscriptions
        hub.run_timers()
        removed.append(left - hub.router.subscriptions)
    assert removed[0] == most
    assert removed[:-1] == sorted(removed[:-1], reverse=True)
    assert removed[-2] == AT_ONCE
    assert hub.router.subscriptions == 0


LINES = [
    b"PING\r\n",
    b"SUB a 1\r\n",
    b"SUB a.* 2\r\n",
    b"SUB > q 3\r\n",
    b"SUB r 4\r\n",
    b"UNSUB 1\r\n",
    b"UNSUB 2 3\r\n",
    b"UNSUB 3\r\n",
    b"PUB a 1\r\nx\r\n",
    b"PUB a.b r 2\r\nxy\r\n",
    b"PUB nobody r 0\r\n\r\n",
    b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    b"PUB $JS.API.INFO r 0\r\n\r\n",
    b"PUB $JS.API.STREAM.INFO.S r 0\r\n\r\n",
    b"PUB s r 5\r\nhello\r\n",
    b"PUB s r 5\r\nhello\r\n" * 12,
    b"PUB s 0\r\n\r\n" * 30,
    b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c r 1\r\n9\r\n",
    b"PUB $JS.ACK.S.c.1.1.1.1.1 0\r\n\r\n" * 3,
    b"PUB a $JS.ACK.x 0\r\n\r\n",
    b'CONNECT {"verbose":true,"headers":true}\r\n',
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n',
    b"NONSENSE\r\n",
]
WEIGHED = [*LINES[:-1], *LINES[:-1], LINES[-1]]


@settings(max_examples=portion(150, 50), deadline=None)
@given(
    script=st.lists(st.sampled_from(WEIGHED), min_size=1, max_size=40),
    cuts=st.lists(st.integers(1, 200), max_size=20),
    looks=st.integers(1, 5),
    grain=st.sampled_from([1, 7, 64]),
    parsed=st.sampled_from([1, 3, 2048]),
)
def test_turns_of_every_size_give_the_transcript_of_none(
    script: list[bytes], cuts: list[int], looks: int, grain: int, parsed: int
) -> None:
    """The same chunks to two hubs, of which one handles each in one go."""
    worlds = [jetstream_world.World(), jetstream_world.World()]
    sessions: list[Session] = []
    for world in worlds:
        client = world.client()
        config = b'{"name":"S","subjects":["s"],"storage":"memory"}'
        consumer = b'{"stream_name":"S","config":{"durable_name":"c","ack_policy":"explicit"}}'
        for subject, body in (
            (b"$JS.API.STREAM.CREATE.S", config),
            (b"$JS.API.CONSUMER.CREATE.S.c", consumer),
        ):
            client.send(b"PUB %b 0 %d\r\n%b\r\n" % (subject, len(body), body))
        world.tick()
        sessions.append(client.session)
    rounds = Rounds(looks, grain, worlds[1].hub)
    sessions[1]._parser.frames_max = parsed
    data, at = b"".join(script), 0
    for size in [*cuts, len(data)]:
        chunk = data[at : at + size]
        at += size
        if chunk:
            sessions[0].receive(chunk)
            rounds.all_of(sessions[1], chunk)
        heard = []
        for world, session in zip(worlds, sessions, strict=True):
            world.hub.end_of_tick()
            heard.append(b"".join(session.take_output()))
        assert heard[0] == heard[1]
    assert sessions[0].closed == sessions[1].closed
    assert sessions[0].in_messages == sessions[1].in_messages
    assert sessions[0].in_bytes == sessions[1].in_bytes


@pytest.mark.parametrize("grain", [1, 64])
def test_units_are_there_again_after_a_look(grain: int) -> None:
    over = False
    budget = Budget(lambda: over, grain)
    budget.charge(grain)
    assert not budget.spent
    assert budget.left == 0
    budget.charge(1)
    assert not budget.spent
    assert budget.left == grain
    over = True
    budget.charge(grain + 1)
    assert budget.spent
    budget.begin()
    assert not budget.spent
    assert budget.left == grain
