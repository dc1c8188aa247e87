"""One input, said in different manners to brokers that are otherwise the same.

``PLAIN`` is the reference: each frame comes alone from a client that asks for every check, its streams take
every message through the whole of admission, its consumers send one message at a time. The other manners
take what ways of their own the broker has. Whatever is said, all have to hear the same, and to leave the
same behind.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from faultfs import FaultFS
from headrace.broker.core.jetstream.consumer import journal
from headrace.broker.core.jetstream.consumer.backlog import LastPerSubject, ReadTogether
from headrace.broker.core.jetstream.consumer.consumer import Consumer
from headrace.broker.core.jetstream.consumer.delivery_pass import Sender
from headrace.broker.core.jetstream.consumer.pull_recipients import PullRecipients
from headrace.broker.core.jetstream.consumer.push import FlowWindow, PushRecipients
from headrace.broker.core.jetstream.engine.engine import JetStream
from headrace.broker.core.jetstream.stream.stream import Stream
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.subscription import GuardedSubscription
from headrace.broker.core.peer import Peer
from headrace.broker.core.ports import Target
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.message import StoredRow
from headrace.wire import Parser, encode
from headrace.wire.frames import ERR, MSG, PUB, Frame
from headrace.wire.inprocess import FrameBatch, PublishRun
from jetstream_world import CONNECT, HeldStorage, World
from sim.whole.coverage import Path, watched

__all__ = ["IDS", "IN_PROCESS", "LIBRARY", "PLAIN", "Entries", "Play", "Twin", "entries"]

RUN_MIN = 2


class PlainSession(Session):
    """A session whose subscriptions are delivered to by ``send`` alone, message by message."""

    __slots__ = ()

    subscription_kinds = (None, GuardedSubscription)


class PlainSender(Sender):
    """Sends and records each message by itself."""

    def send_stored(self, target: Target, rows: list[StoredRow]) -> None:
        for row in rows:
            for message in self.outgoing([row]):
                target.send(*message)
            self.record([row])


class PlainPullRecipients(PullRecipients):
    """Looks for the request of each message by itself."""

    def _send_in_turn(self, rows: list[StoredRow], index: int) -> int:
        return index


class PlainPushRecipients(PushRecipients):
    """Measures each message as it goes out, and asks after each."""

    def _send_by_window(self, rows: list[StoredRow], window: FlowWindow) -> None:
        assert self._target is not None
        for row in rows:
            if window.is_full or not self._push.active:
                return
            [message] = self._sender.outgoing([row])
            self._target.send(*message)
            self._sender.record([row])
            self._push.sent(sum(map(len, message)), self._sender.now_ns)


class PlainLasts(LastPerSubject):
    """Reads each last message of a subject by itself."""

    __slots__ = ()

    def read(self, max_messages: int, max_bytes: int) -> list[StoredRow]:
        return self.read_each(max_messages)


def _send_one_by_one(consumer: Consumer) -> None:
    """Let a consumer send its messages one at a time, and look anew for whom each of them is."""
    delivery = consumer.delivery
    consumer.policy.steady = False
    delivery._sender.__class__ = PlainSender
    consumer.backlog.last_per_subject.__class__ = PlainLasts
    reads = ReadTogether()  # never begun: each reads, counts and writes for itself
    consumer.backlog._reads = consumer.backlog._pending._reads = reads
    consumer.backlog.deliveries = reads.deliveries
    if isinstance(delivery._recipients, PushRecipients):
        delivery._recipients.__class__ = PlainPushRecipients
    else:
        delivery._recipients.__class__ = PlainPullRecipients


class Manner(NamedTuple):
    """How a client speaks, and so which ways its messages go."""

    name: str
    session: type[Session]
    pedantic: bool = False


PLAIN = Manner("plain", PlainSession, pedantic=True)
LIBRARY = Manner("library", Session)
IN_PROCESS = Manner("in-process", InProcessSession)
MANNERS = (PLAIN, LIBRARY, IN_PROCESS)


def opened(kind: str, fs: FaultFS | None = None) -> FileStorage | MemoryStorage:
    """A storage in memory, whose flushes can be held, or of files on a disk in memory."""
    if kind == "memory":
        return HeldStorage()
    salts = random.Random(1)
    return FileStorage("/s", fs=fs or FaultFS(), threaded=False, segment_bytes=8192, salts=salts)


class Twin:
    """A broker, and the one client that talks to it."""

    def __init__(self, manner: Manner, kind: str) -> None:
        self.manner = manner
        self.kind = kind
        self.fs = FaultFS()
        self.world = World(opened(kind, self.fs))
        self._runs: dict[bytes, PublishRun] = {}  # by the reply of their one answer
        self.greet()

    def greet(self) -> None:
        """Connect, in a new life of the broker, too."""
        self.heard: list[Frame] = []
        self._parser = Parser.for_client()
        self.session = self.world.hub.connect(Peer(), self.manner.session)
        self.world.clients[self.session.client_id] = self
        self.tell(CONNECT % (b"true" if self.manner.pedantic else b"false"))
        self.take()

    def received(self, parts: Sequence[bytes | Frame]) -> None:
        for part in parts:
            self.heard += self._parser.feed(part) if isinstance(part, bytes) else [part]

    @property
    def engine(self) -> JetStream:
        engine = self.world.hub.engine
        assert engine is not None
        return engine

    @property
    def streams(self) -> Mapping[str, Stream]:
        return self.engine.registry.streams

    @property
    def consumers(self) -> Iterator[Consumer]:
        for stream in self.streams.values():
            yield from stream.consumers.values()

    # -- saying

    def tell(self, line: bytes) -> None:
        """Say one thing alone, in a tick of its own."""
        self.session.receive(line)
        self.tick()

    def api(self, verb: str, document: Any = None) -> None:
        """One call, whose answer is heard like everything else."""
        body = b"" if document is None else json.dumps(document).encode()
        self.tell(encode.pub(b"$JS.API." + verb.encode(), b"_R.api", b"", body))

    def say(self, frames: Sequence[Frame], cuts: Sequence[int]) -> None:
        """Publish in this twin's manner, within one tick; ``cuts`` are thousandths of the whole."""
        if self.manner is PLAIN:
            for frame in frames:
                self.session.receive(encode.pub(*frame[1:]))
        elif isinstance(self.session, InProcessSession):
            places = sorted({len(frames) * cut // 1000 for cut in cuts} | {0, len(frames)})
            for start, stop in pairwise(places):
                some = list(frames[start:stop])
                size = sum(map(len, (encode.pub(*frame[1:]) for frame in some)))
                run = run_of(some, size)
                if run is not None:
                    self._runs[run.reply] = run
                self.session.receive_chunks([run or FrameBatch(some, size)])
        else:
            data = b"".join([encode.pub(*frame[1:]) for frame in frames])
            places = sorted({len(data) * cut // 1000 for cut in cuts} | {0, len(data)})
            for start, stop in pairwise(places):
                self.session.receive(data[start:stop])
        self.tick()

    def tick(self) -> None:
        self._be_plain()
        self.world.tick()
        self._be_plain()

    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    def restart(self) -> None:
        """Close the files, and open them again."""

        def reopen() -> FileStorage:
            storage = opened(self.kind, self.fs)
            assert isinstance(storage, FileStorage)
            return storage

        self.world.restart(reopen)
        self._be_plain()
        self.greet()

    def _be_plain(self) -> None:
        """Every message through every check, every delivery on its own: also what was just configured."""
        if self.manner is PLAIN:
            for stream in self.streams.values():
                stream.staging.is_plain = False
            for consumer in self.consumers:
                _send_one_by_one(consumer)

    # -- what is told apart

    def take(self) -> list[Frame]:
        """What was heard since the last time, with an answer to each message."""
        heard, self.heard = self.heard, []
        out: list[Frame] = []
        for frame in heard:
            if frame[0] == ERR and "Invalid Publish Subject" in frame[1]:
                continue  # what only those hear who ask for every check; it is routed all the same
            run = self._runs.get(frame[1]) if frame[0] == MSG else None
            out += [frame] if run is None else answers_of(frame, run)
        return out

    def left(self) -> dict[str, Any]:
        """What is stored, what is known of it, and where the consumers are."""
        found: dict[str, Any] = {}
        for name, stream in sorted(self.streams.items()):
            store, window = stream.store, stream.window
            rows = store.rows(1, None, 1 << 20, 1 << 30, store.last_seq)
            now_ns = self.world.clock.now_ns()
            known = [window.find(b"id.%d" % number, now_ns) for number in range(IDS)]
            last = window.last_id, window.last_sequence
            found[name] = [list(rows), store.state, store.durable_seq, known, last]
        for consumer in self.consumers:
            found[consumer.key] = state_of(consumer)
        return found


def state_of(consumer: Consumer) -> list[Any]:
    """Everything a consumer knows of its deliveries."""
    state = consumer.state
    lasts = consumer.backlog.last_per_subject.to_journal(state.delivered_stream)
    acks = consumer.acks
    return [
        journal.encode_snapshot(state, consumer._wall_offset_ns(), lasts),
        sorted(state.pending.items()),
        sorted(state.deliveries.items()),
        (state.delivered_consumer, state.delivered_stream, state.next_seq),
        (state.floor_consumer, state.floor_stream, consumer.num_pending()),
        (acks.last_ns, acks.stalled, consumer.last_delivered_ns),
        (consumer.queue.waiting, consumer.queue.wanted),
    ]


IDS = 24
"""Message ids that are asked about, from 0."""


def run_of(frames: list[Frame], size: int) -> PublishRun | None:
    """The run these frames are, if they are one: as a publisher in this process would send them."""
    first = frames[0]
    prefix, dot, number = first[2].rpartition(b".")
    if len(frames) < RUN_MIN or not number.isdigit():
        return None
    start = int(number)
    for at, frame in enumerate(frames):
        same = frame[0] == PUB and frame[1] == first[1] and not frame[3]
        if not same or frame[2] != b"%b.%d" % (prefix, start + at):
            return None
    return PublishRun(first[1], prefix + dot, start, [frame[4] for frame in frames], size)


def answers_of(frame: Frame, run: PublishRun) -> list[Frame]:
    """The one answer to a run, as answers to each of its messages."""
    _, _, sid, reply, headers, body = frame
    last, count = json.loads(body)["seq"], len(run.payloads)
    return [
        (
            MSG,
            b"%b%d" % (run.prefix, run.first + at),
            sid,
            reply,
            headers,
            body.replace(b'"seq":%d' % last, b'"seq":%d' % (last - count + 1 + at)),
        )
        for at in range(count)
    ]


class Entries:
    """How often each manner entered each path that is watched: by ``(manner, label)``."""

    def __init__(self, watching: Counter[str]) -> None:
        self._watching = watching
        self.counts: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def of(self, manner: Manner) -> Iterator[None]:
        """What is entered meanwhile is entered in this manner."""
        before = self._watching.copy()
        yield
        for label, count in (self._watching - before).items():
            self.counts[manner.name, label] += count

    def missed(self, *wanted: tuple[Manner, str]) -> list[tuple[str, str]]:
        """Which of these were never entered."""
        names = [(manner.name, label) for manner, label in wanted]
        return [name for name in names if not self.counts[name]]


@contextmanager
def entries(paths: Mapping[str, Path]) -> Iterator[Entries]:
    with watched(paths) as watching:
        yield Entries(watching)


class Play:
    """The same is done to twins of every manner, and what they hear is compared after each step."""

    def __init__(self, kind: str, entries: Entries, manners: Sequence[Manner] = MANNERS) -> None:
        self._entries = entries
        self.twins = [Twin(manner, kind) for manner in manners]
        self.plain = self.twins[0]

    def each(self, do: Callable[[Twin], None]) -> list[Frame]:
        """``do`` to each of them, and compare what they heard; returns it."""
        heard = []
        for twin in self.twins:
            with self._entries.of(twin.manner):
                do(twin)
            heard.append(twin.take())
        for twin, frames in zip(self.twins, heard, strict=True):
            assert frames == heard[0], f"{twin.manner.name} hears something else"
        return heard[0]

    def compare(self) -> None:
        """What is left behind is the same."""
        left = self.plain.left()
        for twin in self.twins[1:]:
            assert twin.left() == left, f"{twin.manner.name} leaves something else"
