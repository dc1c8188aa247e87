"""What workers say all day goes the short way, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker.core.jetstream.consumer.pull_path import PullPath
from jetstream_world import Client, Inbox, World
from sim.whole.coverage import Path, took_all, watched

NEXT = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
UNKNOWN = b"$JS.API.CONSUMER.MSG.NEXT.S.X"


def _took(args: object, result: int) -> bool:
    return result > 0


class Worker:
    """A client of one consumer, with what it was delivered."""

    def __init__(self, count: int = 9) -> None:
        self.world = World()
        self.client = self.world.client()
        self.client.stream()
        self.client.consumer()
        for number in range(count):
            self.client.publish(b"s.a", b"%d" % number)
        self.inbox = self.client.subscribe()

    def request(self, body: bytes = b"1", subject: bytes = NEXT, inbox: bytes = b"") -> bytes:
        inbox = inbox or self.inbox.subject
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(body), body)

    def delivered(self, count: int) -> list[bytes]:
        """Pull so many; returns where their acknowledgements go."""
        self.client.send(self.request(b"%d" % count))
        return [message.reply for message in self.inbox.take()]

    @property
    def pending(self) -> int:
        return len(self.world.streams["S"].consumers["C"].state.pending)


@pytest.fixture
def short() -> Iterator[dict[str, int]]:
    with watched({"taken": Path(PullPath, "take", _took)}) as counts:
        yield counts


def plain(reply: bytes) -> bytes:
    return b"PUB %b 0\r\n\r\n" % reply


def spoken(reply: bytes) -> bytes:
    return b"PUB %b 4\r\n+ACK\r\n" % reply


def test_acks_and_the_next_request_are_taken_as_they_were_written(short: dict[str, int]) -> None:
    worker = Worker()
    replies = worker.delivered(3)
    said = short["taken"]
    before = worker.client.session.in_messages, worker.client.session.in_bytes
    acks = [plain(replies[0]), spoken(replies[1]), plain(replies[2])]
    worker.client.send(b"".join([*acks, worker.request(b'{"batch":2}')]))
    assert short["taken"] == said + 1
    assert [message.payload for message in worker.inbox.messages] == [b"3", b"4"]
    assert worker.pending == 2
    after = worker.client.session.in_messages, worker.client.session.in_bytes
    assert after == (before[0] + 4, before[1] + len(b'+ACK{"batch":2}'))


def test_requests_between_acks_are_taken_one_after_the_other(short: dict[str, int]) -> None:
    worker = Worker()
    replies = worker.delivered(4)
    said = short["taken"]
    acks = [plain(reply) for reply in replies]
    worker.client.send(acks[0] + worker.request() + b"".join(acks[1:3]) + worker.request(b"2"))
    assert short["taken"] == said + 2
    assert [message.payload for message in worker.inbox.messages] == [b"4", b"5", b"6"]
    assert worker.pending == 4


def test_what_follows_them_is_parsed(short: dict[str, int]) -> None:
    worker = Worker()
    [reply] = worker.delivered(1)
    said, ears = short["taken"], worker.client.subscribe(b"core")
    worker.client.send(plain(reply) + worker.request() + b"PUB core 2\r\nhi\r\nPING\r\n")
    assert short["taken"] == said + 1
    assert [message.payload for message in ears.messages] == [b"hi"]
    assert worker.pending == 1


@pytest.mark.parametrize("cut", [1, 30, 60, 63, 64, 70, 100])
def test_a_chunk_that_ends_within_a_line_is_taken_in_pieces(cut: int) -> None:
    worker = Worker()
    [reply] = worker.delivered(1)
    said = plain(reply) + worker.request()
    worker.client.send(said[:cut])
    worker.client.send(said[cut:])
    assert not worker.client.errors
    assert [message.payload for message in worker.inbox.messages] == [b"1"]
    assert worker.pending == 1


OTHERS: list[bytes] = [
    b"PUB %(ack)b %(inbox)b 0\r\n\r\n%(request)b",
    b"PUB %(ack)b 4\r\n-NAK\r\n%(request)b",
    b"PUB %(ack)b 4\r\n+WPI\r\n%(request)b",
    b"PUB %(ack)b  0\r\n\r\n%(request)b",
    b"pub %(ack)b 0\r\n\r\n%(request)b",
    b"PUB %(ack)b 0\n\r\n%(request)b",
    b"PUB %(ack)b.1 0\r\n\r\n%(request)b",
    b"PUB $JS.ACK.S.X.1.1.1.1.1 0\r\n\r\n%(request)b",
    b"%(request)bPUB %(ack)b 0\r\n\r\n",
    b"%(request)b%(request)b",
    b"%(request)bPING\r\n",
    b"PUB %(ack)b 0\r\n\r\n%(request)bUNSUB 2\r\nPUB %(ack)b 0\r\n\r\n%(request)b",
    b"PUB %(ack)b 0\r\n\r\n%(request)bfoul\r\n%(request)b",
    b"PUB %(next)b 0\r\n\r\n",
    b"PUB %(next)b $JS.ACK.S.C.1.1.1.1.1 1\r\n1\r\n",
    b"PUB %(next)b %(inbox)b 01\r\n1\r\n",
    b"PUB %(unknown)b %(inbox)b 1\r\n1\r\n",
    b"PUB %(next)b.more %(inbox)b 1\r\n1\r\n",
    b"HPUB %(next)b %(inbox)b 12 13\r\nNATS/1.0\r\n\r\n1\r\n",
    b'PUB %(next)b %(inbox)b 4\r\n{"\r}\r\n',
    b"PUB %(next)b %(inbox)b 3\r\n1\r\n",
    b"PUB %(next)b %(inbox)b 1\r\n1\r\n\r\n",
]


@pytest.mark.parametrize("form", OTHERS)
def test_whatever_is_said_otherwise_comes_to_the_same_as_byte_by_byte(form: bytes) -> None:
    heard = []
    for piece in (1, 1 << 20):
        worker = Worker()
        [reply] = worker.delivered(1)
        said = form % {
            b"ack": reply,
            b"inbox": worker.inbox.subject,
            b"request": worker.request(),
            b"next": NEXT,
            b"unknown": UNKNOWN,
        }
        for at in range(0, len(said), piece):
            worker.client.session.receive(said[at : at + piece])
        worker.world.tick()
        session = worker.client.session
        counted = session.in_messages, session.in_bytes, session.closed
        heard.append((worker.inbox.messages, worker.client.errors, worker.pending, counted))
    assert heard[0] == heard[1]


@pytest.mark.parametrize("pattern", [b"$JS.ACK.>", b"$JS.API.CONSUMER.MSG.NEXT.S.*", b">"])
def test_who_listens_to_what_workers_say_hears_it(pattern: bytes) -> None:
    worker = Worker()
    listener: Client = worker.world.client()
    ears: Inbox = listener.subscribe(pattern)
    [reply] = worker.delivered(1)
    ears.take()
    worker.client.send(plain(reply) + worker.request())
    heard = {message.subject for message in ears.messages}
    assert heard & {reply, NEXT}
    assert worker.pending == 1
    ears.close()
    with watched({"taken": Path(PullPath, "take", took_all)}) as left:
        [reply] = [message.reply for message in worker.inbox.take()]
        worker.client.send(plain(reply) + worker.request())
    assert not left["taken"]
    assert [message.payload for message in worker.inbox.messages] == [b"2"]


def test_a_consumer_that_is_gone_has_no_short_way(short: dict[str, int]) -> None:
    worker = Worker()
    [reply] = worker.delivered(1)
    worker.client.api("CONSUMER.DELETE.S.C")
    said = short["taken"]
    worker.client.send(plain(reply) + worker.request())
    assert short["taken"] == said
    assert [message.status for message in worker.inbox.messages] == ["503"]
