"""JetStream in a bottle: a whole hub on a manual clock and in memory, driven by bytes, without a loop."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.broker.core.hub import Hub
from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.jetstream.stream.stream import Stream
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.clock import ManualClock
from headrace.message import StoredMessage
from headrace.snapshots import framing
from headrace.snapshots.archive import END, MAGIC, message_entry, state_entry
from headrace.wire import Parser, frames

__all__ = [
    "CONNECT",
    "Client",
    "HeldStorage",
    "Inbox",
    "Listener",
    "Received",
    "World",
    "copy_info",
    "put_back",
    "stored",
]

SECOND = 1_000_000_000
CONNECT = b'CONNECT {"verbose":false,"pedantic":%b,"headers":true,"no_responders":true}\r\n'


class Received(NamedTuple):
    """A message as a client gets it."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes

    @property
    def status(self) -> str:
        """``404 No Messages`` of a status message, or nothing."""
        return self.headers.partition(b"\r\n")[0].decode().removeprefix("NATS/1.0").strip()

    @property
    def header(self) -> dict[str, str]:
        lines = self.headers.decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines if line)

    @property
    def tokens(self) -> tuple[int, int, int, int]:
        """Of the ack subject: deliveries, stream sequence, consumer sequence, pending."""
        delivered, stream_seq, consumer_seq, _, pending = self.reply.split(b".")[-5:]
        return int(delivered), int(stream_seq), int(consumer_seq), int(pending)

    @property
    def stream_seq(self) -> int:
        return self.tokens[1]


class HeldStorage(MemoryStorage):
    """Flushes that complete when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = False
        self.fail: Exception | None = None
        self.held: list[Callable[[Exception | None], None]] = []

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        if self.hold:
            self.held.append(done)
        else:
            super().flush(done)

    def release(self) -> None:
        """Complete the oldest held flush, with ``fail`` if that is set."""
        done = self.held.pop(0)
        if self.fail is not None:
            done(self.fail)
        else:
            super().flush(done)


class Listener(Protocol):
    """Somebody at the other end of a session."""

    def received(self, parts: Sequence[bytes]) -> None:
        """What the session had to say in this tick."""
        ...


class World:
    """One hub, its clock, its storage, and the clients that talk to it."""

    pedantic = False
    """How clients connect: as libraries do, whose messages go ways of their own, or with every check."""

    def __init__(
        self,
        storage: FileStorage | MemoryStorage | None = None,
        options: JetStreamOptions | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.storage: FileStorage | MemoryStorage = storage or MemoryStorage()
        self.options = options
        self.clients: dict[int, Listener] = {}
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1  # no two lives invent the same names
        self.hub = Hub(self.clock, random.Random(self.starts))
        self.hub.start_jetstream(self.storage, self.options)

    def restart(self, reopen: Callable[[], FileStorage] | None = None) -> None:
        """Commit what is staged, forget everything but the storage, and start again.

        ``reopen`` closes the storage and opens it anew.
        """
        self.hub.shutdown()
        self.tick()
        if reopen is not None:
            self.storage.close()
            self.storage = reopen()
        self.clients.clear()
        self._start()

    @property
    def streams(self) -> dict[str, Stream]:
        engine = self.hub.engine
        assert engine is not None
        return engine.registry.streams

    def client(self) -> Client:
        session = self.hub.connect(Peer())
        client = self.clients[session.client_id] = Client(self, session)
        client.send(CONNECT % (b"true" if World.pedantic else b"false"))
        return client

    def tick(self) -> None:
        """What the shell does after a round of input."""
        for session in self.hub.end_of_tick():
            parts = session.take_output()
            self.hub.wrote(session, 0)
            client = self.clients.get(session.client_id)
            if client is not None:
                client.received(parts)

    def advance(self, seconds: float) -> None:
        """Let time pass, running each timer at its time."""
        end_ns = self.clock.monotonic_ns() + round(seconds * SECOND)
        while (deadline_ns := self.hub.next_deadline_ns()) is not None and deadline_ns <= end_ns:
            step_ns = max(0, deadline_ns - self.clock.monotonic_ns())
            self.clock.advance(step_ns / SECOND)
            self.hub.run_timers()
            self.tick()
        self.clock.advance((end_ns - self.clock.monotonic_ns()) / SECOND)

    def settle(self) -> None:
        """Run what is due now, as turns that were cut short."""
        self.advance(0)


class Inbox:
    """A subscription of one client; ``messages`` grows as they come."""

    def __init__(self, client: Client, subject: bytes, sid: bytes) -> None:
        self.client = client
        self.subject = subject
        self.sid = sid
        self.messages: list[Received] = []

    def take(self) -> list[Received]:
        """What came since the last time."""
        messages, self.messages = self.messages, []
        return messages

    def close(self) -> None:
        self.client.send(b"UNSUB %b\r\n" % self.sid)


class Client:
    """Speaks the protocol; every call ends with a tick."""

    def __init__(self, world: World, session: Session) -> None:
        self.world = world
        self.session = session
        self.errors: list[str] = []
        self._parser = Parser.for_client()
        self._inboxes: dict[bytes, Inbox] = {}
        self._sids = 0

    def send(self, data: bytes) -> None:
        self.session.receive(data)
        self.world.tick()

    def received(self, parts: Sequence[bytes]) -> None:
        for frame in self._parser.feed(b"".join(parts)):
            if frame[0] == frames.MSG:
                _, subject, sid, reply, headers, payload = frame
                inbox = self._inboxes[sid]
                inbox.messages.append(Received(subject, reply, headers, payload))
            elif frame[0] == frames.ERR:
                self.errors.append(frame[1])

    def subscribe(self, subject: bytes = b"") -> Inbox:
        self._sids += 1
        sid = b"%d" % self._sids
        subject = subject or b"_INBOX.%d.%b" % (self.session.client_id, sid)
        inbox = self._inboxes[sid] = Inbox(self, subject, sid)
        self.send(b"SUB %b %b\r\n" % (subject, sid))
        return inbox

    def publish(
        self, subject: bytes, payload: bytes = b"", reply: bytes = b"", /, **headers: str
    ) -> None:
        self.send(publication(subject, payload, reply, **headers))

    def request(self, subject: bytes, payload: bytes = b"", /, **headers: str) -> Inbox:
        inbox = self.subscribe()
        self.publish(subject, payload, inbox.subject, **headers)
        return inbox

    def api(self, verb: str, document: Any = None) -> dict[str, Any]:
        """One JSON call; no answer is an error."""
        payload = b"" if document is None else json.dumps(document).encode()
        inbox = self.request(b"$JS.API." + verb.encode(), payload)
        answers = inbox.take()
        if not answers:  # it takes several turns
            self.world.settle()
            answers = inbox.take()
        assert len(answers) == 1, f"{verb}: {answers}"
        answer: dict[str, Any] = json.loads(answers[0].payload)
        return answer

    def put(self, subject: bytes, payload: bytes = b"", /, **headers: str) -> dict[str, Any]:
        """Publish to a stream and read the acknowledgement."""
        answers = self.request(subject, payload, **headers).take()
        assert len(answers) == 1, answers
        answer: dict[str, Any] = json.loads(answers[0].payload)
        return answer

    def stream(self, name: str = "S", **config: Any) -> dict[str, Any]:
        config = {"name": name, "subjects": [f"{name.lower()}.>"], **config}
        return self.api(f"STREAM.CREATE.{name}", config)

    def consumer(self, name: str = "C", stream: str = "S", **config: Any) -> dict[str, Any]:
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        document = {"stream_name": stream, "config": config}
        return self.api(f"CONSUMER.CREATE.{stream}.{name}", document)

    def info(self, name: str = "C", stream: str = "S") -> dict[str, Any]:
        return self.api(f"CONSUMER.INFO.{stream}.{name}")

    def pull(self, body: Any = b"", name: str = "C", stream: str = "S") -> Inbox:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode()
        return self.request(subject, payload)

    def ack(self, message: Received, body: bytes = b"+ACK") -> list[Received]:
        """Acknowledge and return the answer."""
        return self.request(message.reply, body).take()


def publication(
    subject: bytes, payload: bytes = b"", reply: bytes = b"", /, **headers: str
) -> bytes:
    """The bytes of a PUB or HPUB; ``Nats_Msg_Id="x"`` is the header ``Nats-Msg-Id``."""
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    sizes = (len(block), len(block) + len(payload))
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, *sizes, block, payload)


def copy_info(client: Client) -> dict[str, Any]:
    """What stream T says of its mirror, or of its first source."""
    client.world.settle()
    info = client.api("STREAM.INFO.T")
    found: dict[str, Any] = info["mirror"] if "mirror" in info else info["sources"][0]
    return found


def stored(client: Client, name: str = "S") -> list[StoredMessage]:
    """Everything in a stream."""
    client.world.settle()
    store = client.world.streams[name].store
    return store.read(0, None, 1 << 20, 1 << 30, store.last_seq)


def put_back(
    client: Client, messages: Sequence[StoredMessage], name: str = "S", last: int = 0, **config: Any
) -> None:
    """Restore a stream from a backup of these messages; ``last`` is the last sequence it gave."""
    config = {"name": name, "subjects": [f"{name.lower()}.>"], **config}
    first = messages[0].sequence if messages else last + 1
    state = {"first_seq": first, "last_seq": last or messages[-1].sequence, "consumer_count": 0}
    entries = [message_entry(m[0], *m[1:]) for m in messages]
    archive = b"".join([MAGIC, state_entry(state, 0), *entries, END])
    data = framing.IDENTIFIER + framing.frame(archive)
    began = client.api(f"STREAM.RESTORE.{name}", {"config": config, "state": state})
    assert "error" not in began, began
    for chunk in (data, b""):
        inbox = client.request(began["deliver_subject"].encode(), chunk)
        client.world.settle()
    (answer,) = inbox.take()
    assert "error" not in json.loads(answer.payload), answer
    client.world.settle()
