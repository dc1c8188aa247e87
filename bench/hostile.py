"""Clients that mean harm, or do not know better: each is a process that keeps a server as busy as it can.

An attack is a function of a ``Target``. What it sends is made before it begins, its answers are read and
thrown away in a thread of their own, so that the attacker is not what is measured. It runs until its process
is ended.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.client import connect
from rawsocket import RawConnection
from waiting import elapse_here

__all__ = ["ATTACKS", "STREAM", "Attack", "Target"]

STREAM = "VICTIM"
CONFIG = {
    "name": STREAM,
    "subjects": ["victim.>"],
    "storage": "memory",
    "num_replicas": 1,
    "max_bytes": 1 << 26,  # what it may hold, so that the rest is the server's own
}
API = b"$JS.API."


@dataclass(frozen=True)
class Target:
    """Where to, and how much of everything."""

    host: str
    port: int
    scale: float = 1.0

    def connect(self) -> RawConnection:
        return RawConnection(self.host, self.port)

    def many(self, count: int) -> int:
        return max(1, round(count * self.scale))


@dataclass(frozen=True)
class Attack:
    """What one of them does; ``prepare`` is done before, in peace."""

    name: str
    run: Callable[[Target], None]
    prepare: Callable[[Target], None] | None = None
    tls: bool = False


def publish(subject: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)


def drain(wire: socket.socket) -> None:
    """Read and forget, until the server hangs up."""
    buffer = bytearray(1 << 20)

    def read() -> None:
        try:
            while wire.recv_into(buffer):
                pass
        except OSError:
            return

    wire.settimeout(None)
    threading.Thread(target=read, daemon=True).start()


def flood(target: Target, chunks: Iterable[bytes], *, reads: bool = True) -> None:
    """Send this over and over; connect again when hung up on."""
    chunks = list(chunks)
    while True:
        with target.connect() as connection:
            connection.socket.settimeout(None)
            if reads:
                drain(connection.socket)
            try:
                while True:
                    for chunk in chunks:
                        connection.socket.sendall(chunk)
            except OSError:
                elapse_here(0.01, "as quick as a client that connects again")


def joined(frames: Iterable[bytes], per_chunk: int = 2_000) -> list[bytes]:
    frames = list(frames)
    return [b"".join(frames[at : at + per_chunk]) for at in range(0, len(frames), per_chunk)]


def make_stream(target: Target, **config: Any) -> None:
    with target.connect() as connection:
        connection.request(f"$JS.API.STREAM.CREATE.{STREAM}", {**CONFIG, **config})


def fill(target: Target, count: int, subject: Callable[[int], str], size: int = 16) -> None:
    make_stream(target)
    with target.connect() as connection:
        connection.publish_acked(target.many(count), 4_000, size, subject)


def consumer_call(name: str, **config: Any) -> bytes:
    """A request to make a consumer, answered to ``_R``."""
    body = {"stream_name": STREAM, "config": {"name": name, "ack_policy": "explicit", **config}}
    subject = b"%bCONSUMER.CREATE.%b.%b" % (API, STREAM.encode(), name.encode())
    return publish(subject, json.dumps(body).encode(), b"_R")


def delete_call(name: str) -> bytes:
    return publish(b"%bCONSUMER.DELETE.%b.%b" % (API, STREAM.encode(), name.encode()), b"", b"_R")


# Subscriptions and routing


def sub_flood(target: Target) -> None:
    count = target.many(100_000)
    subs = joined(b"SUB a.b.%d %d\r\n" % (n, n) for n in range(10, count))
    flood(target, [*subs, *joined(b"UNSUB %d\r\n" % n for n in range(10, count))])


def unsub_flood(target: Target) -> None:
    flood(target, joined(b"UNSUB %d\r\n" % n for n in range(1_000_000, 1_050_000)))


def wildcards(target: Target) -> None:
    """Each wildcard makes the router forget what it knew of the subjects that are busy."""
    frames = [
        b"SUB busy.*.%d %d\r\n" % (n, n)
        + b"".join(publish(b"busy.%d.%d" % (m, n)) for m in range(4))
        + b"UNSUB %d\r\n" % n
        for n in range(10, target.many(20_000))
    ]
    flood(target, joined(frames))


def leave_with_subscriptions(target: Target) -> None:
    """Subscribe as often as is allowed, and hang up."""
    subs = b"".join(b"SUB a.b.%d %d\r\n" % (n, n) for n in range(10, target.many(99_000)))
    while True:
        with target.connect() as connection:
            drain(connection.socket)
            connection.socket.sendall(subs)


def fan_out(target: Target) -> None:
    """One message, a hundred thousand subscribers in ten connections."""
    listeners = [target.connect() for _ in range(10)]
    for listener in listeners:
        drain(listener.socket)
        listener.socket.sendall(
            b"".join(b"SUB fan.out %d\r\n" % n for n in range(10, target.many(10_000)))
        )
    flood(target, [publish(b"fan.out", b"x")])


# Messages


def small_publishes(target: Target) -> None:
    flood(target, [publish(b"nobody.listens") * 5_000])


def stream_publishes(target: Target) -> None:
    flood(target, [publish(b"victim.a", b"x" * 16) * 5_000])


def large_publishes(target: Target) -> None:
    flood(target, [publish(b"victim.a", bytes(1 << 20))])


def on_disk(target: Target) -> None:
    """A stream of files, so that what is published has to go where the good client's messages go."""
    make_stream(target, storage="file", max_bytes=1 << 28)


def header_flood(target: Target) -> None:
    block = b"NATS/1.0\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(4_000)) + b"\r\n"
    frame = b"HPUB victim.a %d %d\r\n%b\r\n" % (len(block), len(block), block)
    flood(target, [frame * 20])


def message_ids(target: Target) -> None:
    frames = []
    for number in range(200_000):
        block = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
        frames.append(b"HPUB victim.a %d %d\r\n%b\r\n" % (len(block), len(block), block))
    flood(target, joined(frames))


def requests(target: Target) -> None:
    """A service and its clients, as fast as they can."""
    service = target.connect()
    service.socket.sendall(b"SUB service 9\r\n")

    def serve() -> None:
        answer = publish(b"_R", b"x")
        while data := service.socket.recv(1 << 18):
            service.socket.sendall(answer * data.count(b"MSG service"))

    service.socket.settimeout(None)
    threading.Thread(target=serve, daemon=True).start()
    flood(target, [b"SUB _R 99\r\n", *[publish(b"service", b"", b"_R") * 2_000] * 50])


def no_responders(target: Target) -> None:
    flood(target, [b"SUB _R 99\r\n", *[publish(b"nobody", b"", b"_R") * 2_000] * 50])


def pings(target: Target) -> None:
    flood(target, [b"PING\r\n" * 20_000])


def connects(target: Target) -> None:
    """The same client says again and again who it is."""
    options = {"verbose": False, "pedantic": False, "headers": True, "name": "x" * 200}
    flood(target, [b"CONNECT %b\r\n" % json.dumps(options).encode() * 500])


def stalled_reader(target: Target) -> None:
    """Listens to what it publishes, and does not read it."""
    flood(
        target,
        [b"SUB victim.> 99\r\n", *[publish(b"victim.a", bytes(60_000))] * 2_000],
        reads=False,
    )


# Connections


def storm(target: Target) -> None:
    """Connect, say who you are, leave; from eight threads."""

    def run() -> None:
        while True:
            try:
                with socket.create_connection((target.host, target.port)) as wire:
                    wire.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                    wire.recv(4096)
            except OSError:
                elapse_here(0.01, "as quick as a client that connects again")

    for _ in range(7):
        threading.Thread(target=run, daemon=True).start()
    run()


def half_open_tls(target: Target) -> None:
    """Handshakes that are begun and not ended, five hundred at a time."""
    open_ones: list[socket.socket] = []
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    while True:
        try:
            wire = socket.create_connection((target.host, target.port))
            wire.sendall(hello)
            open_ones.append(wire)
        except OSError:
            elapse_here(0.01, "no room for more")
        if len(open_ones) >= 500:
            for each in open_ones[:100]:
                each.close()
            del open_ones[:100]


# JetStream


def stream_info(target: Target) -> None:
    flood(target, [publish(b"%bSTREAM.INFO.%b" % (API, STREAM.encode()), b"", b"_R") * 2_000])


def many_streams(target: Target) -> None:
    with target.connect() as connection:
        for number in range(target.many(500)):
            config = {**CONFIG, "name": f"S{number}", "subjects": [f"s.{number}"]}
            connection.request(f"$JS.API.STREAM.CREATE.S{number}", config)


def stream_names(target: Target) -> None:
    listing = publish(API + b"STREAM.LIST", b"", b"_R") + publish(API + b"STREAM.NAMES", b"", b"_R")
    flood(target, [listing * 100])


def bad_json(target: Target) -> None:
    subject = b"%bSTREAM.CREATE.X" % API
    deep = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
    bad = publish(subject, b'{"name": 7}', b"_R") + publish(subject, deep, b"_R")
    long = b'{"name":"X","subjects":[' + b",".join(b'"s.%d"' % n for n in range(90_000)) + b"]"
    flood(target, [bad * 500, publish(subject, long, b"_R")])


def many_subjects(target: Target) -> None:
    """A stream of as many subjects as one may name at once, made and deleted."""
    count = target.many(5_000)
    body = b'{"name":"X","subjects":[%b]}' % b",".join(b'"x.%d"' % n for n in range(count))
    make = publish(API + b"STREAM.CREATE.X", body, b"_R")
    flood(target, [make + publish(API + b"STREAM.DELETE.X", b"", b"_R")])


def changed_subjects(target: Target) -> None:
    """All subjects of a stream changed, and back."""
    count = target.many(5_000)
    listed = [b",".join(b'"%b.%d"' % (head, n) for n in range(count)) for head in (b"x", b"y")]
    bodies = [b'{"name":"X","subjects":[%b]}' % each for each in listed]
    make_first = publish(API + b"STREAM.CREATE.X", bodies[0], b"_R")
    flood(
        target, [make_first + b"".join(publish(API + b"STREAM.UPDATE.X", b, b"_R") for b in bodies)]
    )


def stream_churn(target: Target) -> None:
    """Streams made and deleted, each with a directory of its own."""
    count = target.many(1_000)
    frames = [
        publish(
            b"%bSTREAM.CREATE.N%d" % (API, n), b'{"name":"N%d","subjects":["n.%d"]}' % (n, n), b"_R"
        )
        for n in range(count)
    ]
    frames += [publish(b"%bSTREAM.DELETE.N%d" % (API, n), b"", b"_R") for n in range(count)]
    flood(target, joined(frames, 500))


def consumer_churn(target: Target) -> None:
    frames: list[bytes] = []
    for number in range(2_000):
        frames += (consumer_call(f"c{number}"), delete_call(f"c{number}"))
    flood(target, joined(frames, 500))


def many_consumers(target: Target) -> None:
    """As many as is allowed, each with a filter, and messages for some of them."""
    frames = []
    for number in range(target.many(100_000)):
        filters = f"victim.*.{number}"
        frames.append(consumer_call(f"c{number}", filter_subject=filters))
        frames.append(publish(b"victim.a.%d" % number, b"x"))
    flood(target, joined(frames, 500))


def forged_acks(target: Target) -> None:
    numbers = itertools.cycle(range(1, 1_000))
    acks = [
        publish(b"$JS.ACK.%b.c.1.%d.%d.1.0" % (STREAM.encode(), next(numbers), number))
        for number in range(50_000)
    ]
    wild = [publish(b"$JS.ACK.%b.%d.x.y" % (STREAM.encode(), n), b"+NXT") for n in range(10_000)]
    flood(target, joined([*acks, *wild]))


def with_consumer(target: Target) -> None:
    fill(target, 50_000, lambda n: f"victim.{n % 100}")
    with target.connect() as connection:
        connection.socket.sendall(
            b"SUB _R 99\r\n" + consumer_call("c", max_waiting=20_000, max_ack_pending=-1)
            + consumer_call("n", ack_policy="none", max_waiting=20_000)
        )  # fmt: skip
        connection.request(f"$JS.API.STREAM.INFO.{STREAM}")


def huge_pulls(target: Target) -> None:
    """A million messages at a time, from the start again and again."""
    name = STREAM.encode()
    pull = publish(
        b"%bCONSUMER.MSG.NEXT.%b.n" % (API, name), b'{"batch":1000000,"expires":2000000000}', b"_R"
    )
    reset = publish(b"%bCONSUMER.RESET.%b.n" % (API, name), b'{"seq":1}', b"_Q")
    flood(target, [b"SUB _R 99\r\n", *[pull + reset] * 1_000])


def many_pulls(target: Target) -> None:
    pull = b'{"batch":1,"expires":500000000}'
    subject = b"%bCONSUMER.MSG.NEXT.%b.c" % (API, STREAM.encode())
    flood(
        target,
        [b"SUB _R.* 99\r\n", *joined(publish(subject, pull, b"_R.%d" % n) for n in range(40_000))],
    )


def purges(target: Target) -> None:
    body = b'{"keep":10}'
    purge = publish(b"%bSTREAM.PURGE.%b" % (API, STREAM.encode()), body, b"_R")
    flood(target, [publish(b"victim.%d" % (n % 50), b"x" * 16) * 5_000 + purge for n in range(20)])


def keys(target: Target) -> None:
    fill(target, 10_000, lambda n: f"victim.{n}")


def last_per_subject(target: Target) -> None:
    frames: list[bytes] = []
    for number in range(200):
        name = f"l{number}"
        settings = {"deliver_policy": "last_per_subject", "filter_subject": "victim.>"}
        frames += (consumer_call(name, **settings), delete_call(name))
    flood(target, joined(frames, 100))


def watches(target: Target) -> None:
    """As a bucket is watched: the last of every key, pushed."""
    frames: list[bytes] = []
    for number in range(200):
        name = f"w{number}"
        settings = {
            "deliver_policy": "last_per_subject",
            "deliver_subject": f"_W.{number}",
            "ack_policy": "none",
            "filter_subject": "victim.>",
        }
        frames += (b"SUB _W.%d %d\r\n" % (number, number + 10), consumer_call(name, **settings))
    for number in range(200):
        frames += (delete_call(f"w{number}"), b"UNSUB %d\r\n" % (number + 10))
    flood(target, joined(frames, 100))


def large(target: Target) -> None:
    """A stream on disk that takes a while to save."""
    make_stream(target, storage="file", max_bytes=-1)
    with target.connect() as connection:
        connection.publish_acked(target.many(200_000), 4_000, 1_000, lambda n: f"victim.{n % 100}")


def backups(target: Target) -> None:
    """Saved as fast as it comes, again and again."""

    async def save() -> None:
        async with connect(f"nats://{target.host}:{target.port}") as connection:
            stream = await connection.jetstream().stream(STREAM)
            with tempfile.TemporaryDirectory() as directory:
                while True:
                    await stream.backup(directory)

    asyncio.run(save())


def restores(target: Target) -> None:
    """Restored as fast as it is taken, again and again."""

    async def bring_back() -> None:
        async with connect(f"nats://{target.host}:{target.port}") as connection:
            js = connection.jetstream()
            stream = await js.stream(STREAM)
            config = (await stream.info()).config
            config = msgspec.structs.replace(config, name="BACK", subjects=("back.>",))
            with tempfile.TemporaryDirectory() as directory:
                await stream.backup(directory)
                while True:
                    await (await js.restore_stream(directory, config=config)).delete()

    asyncio.run(bring_back())


ATTACKS = [
    Attack("nobody", lambda target: threading.Event().wait(), None),
    Attack("SUB flood", sub_flood),
    Attack("UNSUB flood", unsub_flood),
    Attack("wildcards over busy subjects", wildcards),
    Attack("leaving with 99,000 subscriptions", leave_with_subscriptions),
    Attack("fan-out to 100,000", fan_out),
    Attack("publishes nobody hears", small_publishes),
    Attack("publishes into a stream", stream_publishes, make_stream),
    Attack("payloads of 1 MiB", large_publishes, make_stream),
    Attack("publishes into a file stream", stream_publishes, on_disk),
    Attack("payloads of 1 MiB into a file stream", large_publishes, on_disk),
    Attack("60 KB of headers", header_flood, make_stream),
    Attack("message ids", message_ids, lambda target: make_stream(target, max_msgs=100_000)),
    Attack("requests and replies", requests),
    Attack("requests to nobody", no_responders),
    Attack("PING flood", pings),
    Attack("CONNECT flood", connects),
    Attack("stalled reader", stalled_reader),
    Attack("connect and leave", storm),
    Attack("half-open TLS", half_open_tls, None, True),
    Attack("STREAM.INFO flood", stream_info, make_stream),
    Attack("STREAM.LIST and NAMES of 500", stream_names, many_streams),
    Attack("bad and long JSON", bad_json),
    Attack("STREAM.CREATE of 5,000 subjects", many_subjects),
    Attack("STREAM.UPDATE of 5,000 subjects", changed_subjects),
    Attack("STREAM.CREATE and DELETE of 1,000 streams", stream_churn),
    Attack("CONSUMER.CREATE and DELETE", consumer_churn, make_stream),
    Attack("100,000 consumers", many_consumers, make_stream),
    Attack("forged acks", forged_acks, with_consumer),
    Attack("pulls of a million", huge_pulls, with_consumer),
    Attack("many pulls", many_pulls, with_consumer),
    Attack("purges", purges, make_stream),
    Attack("last_per_subject on 10,000 keys", last_per_subject, keys),
    Attack("watches of 10,000 keys", watches, keys),
    Attack("backups of 200 MB", backups, large),
    Attack("restores of 200 MB", restores, large),
]  # fmt: skip
