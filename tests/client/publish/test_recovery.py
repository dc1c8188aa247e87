"""The windowed publisher while a stream has no leader, on a simulated cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.api.base import encode
from headrace.api.streams import StreamNamesResponse
from headrace.client.events import Event, LeaderWaitOver, WaitingForLeader
from headrace.client.jetstream.calls import Api
from headrace.client.net.handshake import ServerInfo
from headrace.client.net.session import Counts, LeaderWaits
from headrace.client.nuid import Nuid
from headrace.client.publish.publisher import PublisherSettings, PublishFailure
from headrace.client.publish.transports import WirePublisher
from headrace.errors import NoRespondersError, RequestTimeoutError
from headrace.wire.frames import MSG, Frame
from headrace.wire.headers import header_value
from headrace.wire.parser import Parser
from virtual_time import run

LATENCY_S = 0.002
NOBODY = b"NATS/1.0 503\r\n\r\n"
NOT_LEADER = (
    b'{"error":{"code":503,"err_code":10009,"description":"not leader"},"stream":"S","seq":0}'
)


async def later(seconds: float) -> None:
    """In the virtual time of these tests, which costs none."""
    await asyncio.sleep(seconds)


class Cluster:
    """A stream and the way to it: what a publisher's session is to it, as far as it goes.

    ``mode`` is how the stream is now: "up"; "gone" (no leader: "no responders"); "deposed" (said by one who
    does not lead); "frozen" (what comes is lost); "deaf" (stored, the answers are lost).
    """

    def __init__(self, cluster: str = "three") -> None:
        self.loop = asyncio.get_running_loop()
        self.info = ServerInfo(cluster=cluster)
        self.nuid = Nuid()
        self.trace = None
        self.link: object | None = object()
        self.counts = Counts()
        self.observers: dict[Any, None] = {}
        self.publishers: dict[Any, None] = {}
        self.options = type("Options", (), {"inbox_prefix": "_INBOX"})
        self.hub = self
        self.waits = LeaderWaits(self.loop.time, self.emit)
        self.outbox = self.requests = self.doubt = self
        self.is_refusing = False
        self.events: list[Event] = []
        self.mode = "up"
        self.subjects = "s"
        self.asked = 0
        self.arrivals = 0
        self.stored: list[tuple[str, int]] = []
        self._ids: set[bytes] = set()
        self._parser = Parser.for_server()
        self._receive: Callable[[list[Any]], None] = lambda frames: None
        self._generation = 0
        self._last = 0.0
        self._healing = -1

    # The session

    def new_inbox(self) -> str:
        return f"_INBOX.{self.nuid.next()}"

    def open_route(self, subject: bytes, receive: Callable[[list[Any]], None]) -> object:
        self._receive = receive
        return object()

    def close_route(self, route: object) -> None:
        self._receive = lambda frames: None

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def report(self, error: Exception) -> None:
        raise error

    def begin(self) -> None:
        """The publisher doubts that the server is there."""

    def check_linked(self) -> None:
        assert not self.is_refusing

    def put_once(self, data: bytes) -> None:
        assert self.link is not None
        self._later(self._arrive, self._parser.feed(data))

    def _later(self, call: Callable[[list[Any], int], None], frames: list[Any]) -> None:
        """In a while, one after the other: the loop does not keep what is due at once in order."""
        self._last = max(self._last + 1e-9, self.loop.time() + LATENCY_S)
        self.loop.call_at(self._last, call, frames, self._generation)

    async def ask(self, subject: str, headers: bytes, payload: bytes, timeout: float) -> Frame:
        """Who has the subject? The rest of the cluster knows."""
        self.asked += 1
        await later(2 * LATENCY_S)
        mine = f'"{self.subjects}.'.encode() in payload
        answer = StreamNamesResponse(total=1, streams=("S",) if mine else ())
        return (MSG, b"", b"1", b"", b"", encode(answer))

    # The other side

    def _arrive(self, frames: list[Any], generation: int) -> None:
        if generation != self._generation:
            return
        answers = []
        for _, subject, reply, headers, payload in frames:
            self.arrivals += 1
            if self._healing >= 0:
                self._healing -= 1
                if self._healing < 0:
                    self.mode = "up"
            head, body = b"", b""
            if self.mode == "gone" or not subject.startswith(self.subjects.encode() + b"."):
                head = NOBODY
            elif self.mode == "deposed":
                body = NOT_LEADER
            elif self.mode == "frozen":
                continue
            else:
                body = self._store(subject, headers, payload)
                if self.mode == "deaf":
                    continue
            answers.append((MSG, reply, b"1", b"", head, body))
        self._later(self._answer, answers)

    def _store(self, subject: bytes, headers: bytes, payload: bytes) -> bytes:
        msg_id = header_value(headers, b"Nats-Msg-Id") if headers else None
        if msg_id in self._ids:
            return b'{"stream":"S","seq":1,"duplicate":true}'
        if msg_id is not None:
            self._ids.add(msg_id)
        self.stored.append((subject.decode(), int(payload)))
        return b'{"stream":"S","seq":%d}' % len(self.stored)

    def _answer(self, answers: list[Any], generation: int) -> None:
        if generation == self._generation and answers:
            self._receive(answers)

    async def disconnect(self, seconds: float) -> None:
        self._generation += 1
        self.link = None
        for observer in list(self.observers):
            observer.connection_lost()
        await asyncio.sleep(seconds)
        self.link = object()
        for observer in list(self.observers):
            observer.connection_restored()

    async def heal(self, after: int, publisher: WirePublisher) -> None:
        """Have a leader from the message on that arrives after so many more, or soon anyway.

        At once if the publisher sees no trouble: what it sends then in one go nobody can keep in order.
        """
        if publisher._recovery.stalled:
            self._healing = after
            await later(3)
        self._healing, self.mode = -1, "up"

    def publisher(self, **options: Any) -> WirePublisher:
        settings = {
            "window": 100,
            "window_bytes": 1 << 20,
            "ack_timeout": 10.0,
            "delivery_timeout": 120.0,
            "retries": 3,
            "deduplicate": True,
            "on_failure": None,
            **options,
        }
        return WirePublisher(Api(self), PublisherSettings(**settings))  # type: ignore[arg-type]

    def check_order(self, total: int) -> None:
        """Everything is stored once, each subject's messages in their order."""
        assert sorted(number for _, number in self.stored) == [*range(total)]
        by_subject = defaultdict(list)
        for subject, number in self.stored:
            by_subject[subject].append(number)
        for numbers in by_subject.values():
            assert all(a < b for a, b in pairwise(numbers)), numbers


@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("mode", ["gone", "deposed"])
def test_what_has_no_leader_waits_and_comes_in_order(mode: str, deduplicate: bool) -> None:
    async def main() -> None:
        cluster = Cluster()
        async with cluster.publisher(deduplicate=deduplicate, window=300) as publisher:
            await publisher.send_many((f"s.{n % 3}", b"%d" % n) for n in range(150))
            cluster.mode = mode
            for number in range(150, 230):
                await publisher.send(f"s.{number % 3}", b"%d" % number)
            await later(7)
            assert (cluster.waits.count, publisher.failed) == (1, 0)
            assert cluster.arrivals < 300  # three a second, not the window again and again
            cluster.mode = "up"
            await publisher.flush()
        assert (publisher.acked, publisher.failed, cluster.waits.count) == (230, 0, 0)
        cluster.check_order(230)
        began, ended = cluster.events
        assert isinstance(began, WaitingForLeader)
        assert "'S'" in began.of or "'s." in began.of
        assert isinstance(ended, LeaderWaitOver)
        assert ended.found
        assert 6 < ended.waited < 9

    run(main())


def test_what_waits_too_long_fails_and_the_rest_is_stored() -> None:
    async def main() -> None:
        cluster = Cluster()
        failures: list[PublishFailure] = []
        cluster.mode = "gone"
        async with cluster.publisher(delivery_timeout=30, on_failure=failures.append) as publisher:
            await publisher.send("s.a", b"0")
            await later(20)
            await publisher.send("s.a", b"1")
            await later(15)
            assert [failure.index for failure in failures] == [0]
            cluster.mode = "up"
        assert isinstance(failures[0].error, NoRespondersError)
        assert "no leader within 30" in str(failures[0].error)
        assert (publisher.acked, cluster.stored) == (1, [("s.a", 1)])

    run(main())


def test_what_nobody_has_fails_within_a_round_trip_and_the_others_go_on() -> None:
    async def main() -> None:
        cluster = Cluster()
        failures: list[PublishFailure] = []
        async with cluster.publisher(on_failure=failures.append) as publisher:
            for number in range(90):
                await publisher.send("t.a" if number % 3 == 2 else "s.a", b"%d" % number)
            await publisher.flush()
            assert cluster.loop.time() < 4.1 * LATENCY_S  # a publish and a question
        assert [failure.index for failure in failures] == [*range(2, 90, 3)]
        assert all(isinstance(failure.error, NoRespondersError) for failure in failures)
        assert "no stream has the subject 't.a'" in str(failures[0].error)
        assert cluster.asked == 1
        assert [number for _, number in cluster.stored] == [n for n in range(90) if n % 3 != 2]
        assert not cluster.events

    run(main())


def test_a_server_that_was_only_slow_is_not_sent_everything_again() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.mode = "frozen"
        held: list[Any] = []
        arrive = cluster._arrive
        cluster._arrive = lambda *given: held.append(given)  # type: ignore[method-assign]
        async with cluster.publisher(window=200) as publisher:
            await publisher.send_many(("s.a", b"%d" % n) for n in range(100))
            await later(5)
            assert len(held) > 3  # waves of one message behind the hundred
            cluster.mode, cluster._arrive = "up", arrive  # type: ignore[method-assign]
            for given_ in held:
                arrive(*given_)
        assert publisher.acked == 100
        assert cluster.arrivals < 115
        cluster.check_order(100)

    run(main())


def test_without_ids_what_may_be_stored_is_sent_again_as_often_as_it_says() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.mode = "deaf"
        failures: list[PublishFailure] = []
        async with cluster.publisher(
            deduplicate=False, ack_timeout=1.0, retries=2, on_failure=failures.append
        ) as publisher:
            await publisher.send("s.a", b"0")
        assert isinstance(failures[0].error, RequestTimeoutError)
        assert cluster.stored == [("s.a", 0)] * 3

    run(main())


ELECTION_S = 4.0  # nats-server waits so long at least for one who was not heard of

FAULTS = {  # how long each may last: elections take seconds, answers a round trip
    "gone": st.floats(0.6, 12),
    "deposed": st.floats(0.6, 12),
    "frozen": st.floats(ELECTION_S, 12),
    "cut": st.floats(0.001, 5),
}
fault = st.sampled_from(sorted(FAULTS)).flatmap(
    lambda mode: st.tuples(st.just(mode), FAULTS[mode], st.floats(0, 6), st.integers(0, 9))
)


@given(
    faults=st.lists(fault, max_size=6),
    lost_s=st.floats(0, 0.004),
    subjects=st.integers(1, 4),
    window=st.integers(1, 60),
    pause=st.floats(0, 0.2),
)
@example(faults=[("cut", 1.0, 0.1, 0)], lost_s=0.004, subjects=1, window=60, pause=0.001)
@example(
    faults=[("frozen", 5.0, 1.0, 0), ("gone", 2.0, 0, 3)], lost_s=0, subjects=2, window=9, pause=0.1
)
def test_with_ids_all_is_stored_once_and_in_order_whatever_fails(
    faults: list[tuple[str, float, float, int]],
    lost_s: float,
    subjects: int,
    window: int,
    pause: float,
) -> None:
    total = 200

    async def hurt(cluster: Cluster, publisher: WirePublisher) -> None:
        for mode, seconds, quiet, after in faults:
            await asyncio.sleep(quiet)
            if seconds > ELECTION_S or mode == "cut":  # who only steps down answers
                cluster.mode = "deaf"  # the last acknowledgements of a leader are lost with it
                await asyncio.sleep(lost_s / 2)
                cluster.mode = "frozen"  # and what came after them as well
                await asyncio.sleep(lost_s / 2)
            if mode == "cut":
                cluster.mode = "up"
                await cluster.disconnect(seconds)
            else:
                cluster.mode = mode
                await asyncio.sleep(seconds)
                await cluster.heal(after, publisher)

    async def main() -> None:
        cluster = Cluster()
        async with cluster.publisher(window=window) as publisher:
            hurting = asyncio.create_task(hurt(cluster, publisher))
            for number in range(total):
                await publisher.send(f"s.{number % subjects}", b"%d" % number)
                await asyncio.sleep(pause)
            await publisher.flush()
            await hurting
        assert (publisher.acked, publisher.failed) == (total, 0)
        assert cluster.waits.count == 0
        cluster.check_order(total)

    run(main())
