"""Slices of the loop: who says much goes on later, who says little is served at once, nothing is lost."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peers
from headrace import Broker as Embedded
from headrace import connect
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.router import Router
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.subscription import Subscription
from headrace.broker.server import Broker
from headrace.broker.server.connections.pump import OTHERS_EVERY, SLICE_NS, TURN_NS, Slices
from headrace.clock import ManualClock

uvloop = peers.package("uvloop")

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Guest:
    """Needs so many milliseconds, in slices; in each it makes so many subscriptions."""

    def __init__(self, room: Room, name: str, needs_ms: float = 0, makes: int = 0) -> None:
        self.room = room
        self.name = name
        self.needs_ns = round(needs_ms * 1e6)
        self.makes = makes
        self.is_waiting = False
        self.subscriptions = 0
        self.seniority = len(room.guests)
        room.guests.append(self)

    def say(self) -> None:
        """As a connection that has just read something."""
        if self.room.slices.begin():
            self.use_slice()
        else:
            self.room.slices.ask(self)

    def use_slice(self) -> None:
        room = self.room
        room.served.append(self.name)
        slice_ns = min(SLICE_NS, self.needs_ns)
        room.clock.advance(slice_ns / 1e9)
        self.needs_ns -= slice_ns
        assert room.slices.is_used_up() == (slice_ns == SLICE_NS)
        self.subscriptions += self.makes
        if self.needs_ns:
            room.slices.ask(self)


class Room:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.guests: list[Guest] = []
        self.served: list[str] = []
        self.woken = 0
        self.slices = Slices(Hub(self.clock, random.Random(1)), self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def turn(self) -> list[str]:
        self.served.clear()
        self.slices.serve_waiting()
        return self.served

    def rest(self) -> list[str]:
        """Who gets the slices from here to the end."""
        served: list[str] = []
        while self.slices.awaited:
            served += self.turn()
        return served


def test_who_says_little_never_waits_for_who_says_much() -> None:
    room = Room()
    busy = [Guest(room, f"busy{n}", 100) for n in range(5)]
    for guest in busy:
        guest.say()
    # Two slices are a turn: the others were put off unserved, and come before those who were.
    assert room.served == ["busy0", "busy1"]
    assert SLICE_NS * 2 == TURN_NS
    assert room.woken
    assert room.turn() == ["busy2", "busy3", "busy0"]
    little = Guest(room, "little")
    little.say()
    assert room.served[-1] == "little"  # what is read after that has a turn of its own
    order = [name for _ in range(10) for name in room.turn()]
    assert order[:6] == ["busy4", "busy1", "busy2", "busy3", "busy0", "busy4"]
    assert max(order.count(guest.name) for guest in busy) <= 1 + min(
        order.count(guest.name) for guest in busy
    )


def test_those_who_come_all_the_time_do_not_keep_a_busy_one_waiting_for_ever() -> None:
    room = Room()
    busy = Guest(room, "busy", 10)
    busy.say()
    for _ in range(3):
        crowd = [Guest(room, "crowd", 2) for _ in range(20)]
        for guest in crowd:
            guest.say()
        assert "busy" in room.turn()
    assert busy.needs_ns == 0


def test_a_turn_is_bounded_however_many_wait() -> None:
    room = Room()
    for number in range(1_000):
        Guest(room, str(number), 1).say()
    while room.slices.awaited:
        before = room.clock.monotonic_ns()
        room.turn()
        assert room.clock.monotonic_ns() - before <= TURN_NS + SLICE_NS


def test_who_leaves_is_not_called() -> None:
    room = Room()
    busy = Guest(room, "busy", 10)
    busy.say()
    room.slices.withdraw(busy)
    assert not room.slices.awaited
    assert room.turn() == []


def test_of_those_who_subscribe_by_the_thousand_most_slices_are_the_oldest_ones() -> None:
    room = Room()
    crowd = [Guest(room, str(n), 25 * SLICE_NS / 1e6, makes=500) for n in range(20)]
    for guest in reversed(crowd):
        guest.say()
    served = room.rest()
    # Until they have many subscriptions, each has its turn.
    assert set(served[:45]) == {guest.name for guest in crowd}
    last = {name: len(served) - served[::-1].index(name) for name in served}
    assert last["0"] == min(last.values())
    order = sorted(last, key=last.__getitem__)
    assert sum(order.index(guest.name) < 10 for guest in crowd[:10]) >= 9
    # In turn, all of them would be ready in the last twenty.
    assert sorted(last.values())[10] < 0.75 * len(served)
    assert all(guest.needs_ns == 0 for guest in crowd)


def test_the_oldest_subscriber_does_not_stop_the_others() -> None:
    room = Room()
    for name in ("oldest", "a", "b", "c"):
        Guest(room, name, 1_000 * SLICE_NS / 1e6, makes=2_000).say()
    served = [name for _ in range(200) for name in room.turn()][20:]
    count = {name: served.count(name) for name in set(served)}
    assert count["oldest"] == pytest.approx(len(served) * (1 - 1 / OTHERS_EVERY), abs=4)
    assert count["a"] == pytest.approx(count["b"], abs=2)
    assert count["a"] == pytest.approx(count["c"], abs=2)


def test_who_publishes_beside_a_crowd_of_subscribers_has_its_turn_as_before() -> None:
    room = Room()
    for number in range(9):
        Guest(room, f"subscriber{number}", 1_000 * SLICE_NS / 1e6, makes=2_000).say()
    Guest(room, "publisher", 1_000 * SLICE_NS / 1e6).say()
    served = [name for _ in range(200) for name in room.turn()][20:]
    turns = [at for at, name in enumerate(served) if name == "publisher"]
    assert {after - at for at, after in pairwise(turns)} == {10}


def test_who_subscribes_and_unsubscribes_has_its_turn_as_the_others() -> None:
    room = Room()
    old = Guest(room, "old", 1_000 * SLICE_NS / 1e6)
    old.subscriptions = 50_000
    for guest in (old, Guest(room, "a", 1_000 * SLICE_NS / 1e6)):
        guest.say()
    served = [name for _ in range(50) for name in room.turn()]
    assert abs(served.count("old") - served.count("a")) <= 1


@given(st.data())
def test_everybody_comes_to_an_end_whoever_subscribes_and_leaves(data: st.DataObject) -> None:
    room = Room()
    needs, makes = st.integers(0, 40), st.sampled_from([0, 1, 700, 5_000])
    gone: list[Guest] = []
    for number in range(data.draw(st.integers(1, 12))):
        Guest(room, str(number), data.draw(needs), data.draw(makes)).say()
        if data.draw(st.booleans()):
            room.turn()
        if data.draw(st.booleans()):
            leaver = data.draw(st.sampled_from(room.guests))
            room.slices.withdraw(leaver)
            gone.append(leaver)
    served = room.rest()
    assert not {guest.name for guest in gone} & set(served)
    assert all(guest.needs_ns == 0 or guest in gone for guest in room.guests)
    assert not any(guest.is_waiting for guest in room.guests)
    assert room.turn() == []


def _slow_subscribe(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    """Each SUB takes a millisecond of the clock the turns are measured by."""
    one, many, clock = Router.subscribe, Router.subscribe_all, broker.hub.clock
    drift = 0
    now = clock.monotonic_ns

    def subscribe(self: Router, subscription: Subscription) -> None:
        nonlocal drift
        drift += 1_000_000
        one(self, subscription)

    def subscribe_all(self: Router, subscriptions: Sequence[Subscription]) -> None:
        nonlocal drift
        drift += 1_000_000 * len(subscriptions)
        many(self, subscriptions)

    monkeypatch.setattr(Router, "subscribe", subscribe)
    monkeypatch.setattr(Router, "subscribe_all", subscribe_all)
    monkeypatch.setattr(broker._pump.slices, "_now_ns", lambda: now() + drift)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", LOOPS)
def test_a_ping_is_answered_while_a_flood_is_handled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 6_000

    async def main() -> None:
        async with Broker() as broker:
            _slow_subscribe(monkeypatch, broker)
            good_reader, good = await asyncio.open_connection("127.0.0.1", broker.port)
            good.write(CONNECT + b"PING\r\n")
            await good_reader.readuntil(b"PONG\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(CONNECT + b"".join(b"SUB a.%d %d\r\n" % (n, n) for n in range(count)))
            writer.write(b"PING\r\n")
            hostile = max(broker.hub.sessions.values(), key=lambda s: s.client_id)
            while not hostile.wants_slice:
                await asyncio.sleep(0)
                hostile = max(broker.hub.sessions.values(), key=lambda s: s.client_id)
            taken = len(hostile.subscriptions)
            assert taken < count
            good.write(b"PING\r\n")
            await good_reader.readuntil(b"PONG\r\n")
            # Some slices of a few dozen lines passed, of the six thousand lines that were there.
            assert len(hostile.subscriptions) - taken < count // 10
            assert hostile.wants_slice
            await reader.readuntil(b"PONG\r\n")
            assert len(hostile.subscriptions) == count
            assert not hostile.holds_input
            writer.close()
            good.close()

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(main())


async def test_the_older_of_two_mass_subscribers_is_ready_long_before_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Broker() as broker:
        _slow_subscribe(monkeypatch, broker)
        pairs = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(2)]
        for number, (_, writer) in enumerate(pairs):
            lines = (b"SUB %d.%d %d\r\n" % (number, n, n) for n in range(4_000))
            writer.write(CONNECT + b"".join(lines) + b"PING\r\n")
        await pairs[0][0].readuntil(b"PONG\r\n")
        older, newer = sorted(broker.hub.sessions.values(), key=lambda s: s.client_id)
        assert len(older.subscriptions) == 4_000
        # A thousand are made in turn, and few of the slices after that are the newer one's.
        assert 1_000 <= len(newer.subscriptions) < 2_500
        await pairs[1][0].readuntil(b"PONG\r\n")
        assert len(newer.subscriptions) == 4_000
        for _, writer in pairs:
            writer.close()


@pytest.mark.parametrize("name", LOOPS)
def test_nothing_is_read_from_who_has_something_kept(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of megabytes: what is kept of it is no more than a read or two bring."""

    async def main() -> None:
        async with Broker() as broker:
            peak = 0
            real = Session.go_on

            def go_on(self: Session) -> None:
                nonlocal peak
                peak = max(peak, self.kept_bytes)
                real(self)

            monkeypatch.setattr(Session, "go_on", go_on)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(CONNECT + b"PUB a 5\r\nhello\r\n" * 300_000 + b"PING\r\n")
            await reader.readuntil(b"PONG\r\n")
            assert 0 < peak <= 2 * 256 * 1024
            writer.close()

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(main())


async def _pipe_and_hang_up(broker: Broker) -> bytes:
    """What a script hears that pipes in its lines and closes its end."""

    def run() -> bytes:
        wire = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        with closing(wire):
            assert wire.recv(4096).startswith(b"INFO ")
            wire.sendall(CONNECT + b"PING\r\n" * 30_000 + b"PUB kept 4\r\nlast\r\n")
            wire.shutdown(socket.SHUT_WR)
            heard = b""
            while heard.count(b"PONG") < 30_000:
                data = wire.recv(1 << 16)
                if not data:
                    break
                heard += data
            return heard

    return await asyncio.to_thread(run)


@pytest.mark.parametrize("name", LOOPS)
def test_who_pipes_its_lines_and_hangs_up_hears_all_answers(name: str) -> None:
    async def main() -> None:
        async with Broker() as broker, connect(broker.client_url) as client:
            kept = await client.subscribe("kept")
            heard = await _pipe_and_hang_up(broker)
            assert heard.count(b"PONG\r\n") == 30_000
            assert (await kept.next(timeout=5)).payload == b"last"

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(main())


async def test_what_a_client_in_process_said_before_it_left_is_handled() -> None:
    async with Embedded(port=-1, jetstream=False) as broker, broker.connect() as listener:
        heard = await listener.subscribe("left")
        await listener.flush()
        client = await broker.connect()
        for number in range(20_000):
            client.publish_nowait("nobody", b"%d" % number)
        client.publish_nowait("left", b"last")
        await client.close()
        assert (await heard.next(timeout=5)).payload == b"last"


async def test_what_is_kept_waits_for_the_disk_like_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = False
    monkeypatch.setattr(Hub, "ingest_blocked", property(lambda hub: blocked))
    async with Broker() as broker:
        _slow_subscribe(monkeypatch, broker)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(CONNECT + b"".join(b"SUB a %d\r\n" % n for n in range(2_000)) + b"PING\r\n")
        while not (sessions := [s for s in broker.hub.sessions.values() if s.wants_slice]):
            await asyncio.sleep(0)
        (session,) = sessions
        blocked = True
        pump = broker._pump
        assert pump is not None
        while not pump.reading_paused:
            await asyncio.sleep(0)
        taken = len(session.subscriptions)
        assert taken < 2_000
        for _ in range(50):
            pump.wake()
            await asyncio.sleep(0)
        assert len(session.subscriptions) == taken
        blocked = False
        pump.run(lambda: None)  # as a flush that is done
        await reader.readuntil(b"PONG\r\n")
        assert len(session.subscriptions) == 2_000
        writer.close()


async def test_what_was_said_before_the_socket_was_lost_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Broker() as broker, connect(broker.client_url) as client:
        heard = await client.subscribe("last")
        await client.flush()
        _slow_subscribe(monkeypatch, broker)
        _reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(CONNECT + b"".join(b"SUB a %d\r\n" % n for n in range(500)))
        writer.write(b"PUB last 4\r\nword\r\n")
        while not (sessions := [s for s in broker.hub.sessions.values() if s.wants_slice]):
            await asyncio.sleep(0)
        (session,) = sessions
        connection = broker._pump.connections[session.client_id]  # type: ignore[union-attr]
        connection.abort()
        assert (await heard.next(timeout=5)).payload == b"word"
        async with asyncio.timeout(5):
            await connection.gone.wait()
        assert session.closed
        assert session.client_id not in broker.hub.sessions
        writer.close()
