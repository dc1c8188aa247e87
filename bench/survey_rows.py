"""The rows of ``survey``: what users do most of the day, each short, each for any server.

A row prepares the server and returns what is timed: ``(messages, seconds, server_seconds)``.
"""

from __future__ import annotations

import json
import re
import selectors
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cpu
import peers
from rawload import connections, flow, in_turns
from rawsocket import ACK_MARK, RawConnection

PAYLOAD = b"x" * 100
Measured = tuple[int, float, float]
Row = Callable[[peers.ServerProcess], Measured]


def timed(server: peers.ServerProcess, messages: int, work: Callable[[], float]) -> Measured:
    """Do the work, which returns its seconds, and say what the server has spent on it."""
    before = cpu.of_process(server.process.pid)
    seconds = work()
    return messages, seconds, cpu.of_process(server.process.pid) - before


def stream(connection: RawConnection, name: str, *subjects: str, **config: Any) -> None:
    body = {"name": name, "subjects": subjects, "storage": "file", "num_replicas": 1, **config}
    connection.request(f"$JS.API.STREAM.CREATE.{name}", body)


def bucket(connection: RawConnection) -> None:
    """A bucket as ``create_key_value`` makes it, with direct gets."""
    stream(
        connection,
        "KV_bench",
        "$KV.bench.>",
        max_msgs_per_subject=1,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        allow_msg_ttl=True,
        duplicate_window=120_000_000_000,
    )


def frame(subject: bytes, payload: bytes, client: RawConnection, number: int) -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, client.inbox, len(payload), payload)


def keyed(prefix: bytes, keys: int, payload: bytes, client: RawConnection, number: int) -> bytes:
    return frame(prefix + b"%d" % (number * 7919 % keys), payload, client, number)


# Publishing


def awaited(clients: int, messages: int, server: peers.ServerProcess) -> Measured:
    """So many connections, each with one message in flight."""
    with connections(server, clients) as open_ones:
        stream(open_ones[0], "BENCH", "bench.>")
        make = partial(frame, b"bench.publish", PAYLOAD)
        return timed(server, messages, lambda: in_turns(open_ones, messages, make, ACK_MARK))


def many_streams(
    streams: int, window: int, messages: int, server: peers.ServerProcess, clients: int = 1
) -> Measured:
    """One message to each stream in turn. Each has one before, as the first makes its files."""
    with connections(server, clients) as open_ones:
        for number in range(streams):
            stream(open_ones[0], f"BENCH-{number}", f"bench.{number}")
        make = partial(keyed, b"bench.", streams, PAYLOAD)
        in_turns(open_ones[:1], streams, make, ACK_MARK, window)
        return timed(
            server, messages, lambda: in_turns(open_ones, messages, make, ACK_MARK, window)
        )


def creating(streams: int, server: peers.ServerProcess) -> Measured:
    with RawConnection(server.host, server.port) as connection:

        def make(client: RawConnection, number: int) -> bytes:
            name = f"BENCH-{number}"
            body = {"name": name, "subjects": [f"bench.{number}"], "num_replicas": 1}
            subject = f"$JS.API.STREAM.CREATE.{name}".encode()
            return frame(subject, json.dumps(body).encode(), client, number)

        work = partial(in_turns, [connection], streams, make, b"stream_create_response")
        return timed(server, streams, work)


def windowed(
    payload_bytes: int, subjects: int, messages: int, server: peers.ServerProcess
) -> Measured:
    """16,000 in flight through one connection."""
    names: str | Callable[[int], str] = "bench.publish"
    if subjects > 1:
        names = lambda index: f"bench.{index % subjects}"  # noqa: E731
    with RawConnection(server.host, server.port) as connection:
        stream(connection, "BENCH", "bench.>")
        window = min(16_000, (64 << 20) // payload_bytes)
        work = partial(connection.publish_acked, messages, window, payload_bytes, names)
        return timed(server, messages, lambda: work(frames_per_chunk=min(500, window // 4)))


def atomic(size: int, messages: int, server: peers.ServerProcess) -> Measured:
    """Atomic batches of so many, one after the other, as the sink of Spark commits rows."""
    block = b"NATS/1.0\r\nNats-Batch-Id: batch%09d\r\nNats-Batch-Sequence: %d\r\n%b\r\n"
    with connections(server, 1) as open_ones:
        stream(open_ones[0], "BENCH", "bench.>", allow_atomic=True)

        def make(client: RawConnection, number: int) -> bytes:
            frames = []
            for place in range(1, size + 1):
                ends = place == size
                headers = block % (number, place, b"Nats-Batch-Commit: 1\r\n" if ends else b"")
                sizes = b"%d %d" % (len(headers), len(headers) + len(PAYLOAD))
                reply = client.inbox + b" " if ends else b""
                line = b"HPUB bench.%d %b%b\r\n%b%b\r\n"
                frames.append(line % (place * 7 % 3_000, reply, sizes, headers, PAYLOAD))
            return b"".join(frames)

        batches = messages // size
        work = partial(in_turns, open_ones, batches, make, ACK_MARK, 4)
        return timed(server, messages, work)


def expecting_last(messages: int, window: int, server: peers.ServerProcess) -> Measured:
    """Each publish says which sequence the stream is at: one writer, who notices another."""
    block = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n"
    with connections(server, 1) as open_ones:
        stream(open_ones[0], "BENCH", "bench.>")

        def make(client: RawConnection, number: int) -> bytes:
            headers = block % number
            sizes = b"%d %d" % (len(headers), len(headers) + len(PAYLOAD))
            return b"HPUB bench.a %b %b\r\n%b%b\r\n" % (client.inbox, sizes, headers, PAYLOAD)

        work = partial(in_turns, open_ones, messages, make, ACK_MARK, window)
        return timed(server, messages, work)


# Key-value


def put(
    keys: int, messages: int, clients: int, window: int, server: peers.ServerProcess
) -> Measured:
    """Into a bucket in which each key was written once."""
    with connections(server, clients) as open_ones:
        bucket(open_ones[0])
        make = partial(keyed, b"$KV.bench.key.", keys, PAYLOAD)
        in_turns(open_ones[:1], keys, make, ACK_MARK, 4_000)
        return timed(
            server, messages, lambda: in_turns(open_ones, messages, make, ACK_MARK, window)
        )


def expecting(keys: int, messages: int, window: int, server: peers.ServerProcess) -> Measured:
    """Into a bucket, one key after the other, each put saying which one it is to follow."""
    block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\nBy: %024d\r\n\r\n"
    with connections(server, 1) as open_ones:
        bucket(open_ones[0])

        def make(again: bool, client: RawConnection, number: int) -> bytes:
            headers = block % (number + 1 if again else 0, number)
            subject, size = b"$KV.bench.key.%d" % (number % keys), len(headers)
            sizes = b"%d %d" % (size, size + len(PAYLOAD))
            return b"HPUB %b %b %b\r\n%b%b\r\n" % (
                subject, client.inbox, sizes, headers, PAYLOAD
            )  # fmt: skip

        in_turns(open_ones, keys, partial(make, False), ACK_MARK, window)
        work = partial(in_turns, open_ones, messages, partial(make, True), ACK_MARK, window)
        return timed(server, messages, work)


def get(keys: int, messages: int, window: int, server: peers.ServerProcess) -> Measured:
    """Keys one after the other, by direct get."""
    with connections(server, 1) as open_ones:
        bucket(open_ones[0])
        write = partial(keyed, b"$KV.bench.key.", keys, PAYLOAD)
        in_turns(open_ones, keys, write, ACK_MARK, 4_000)
        read = partial(keyed, b"$JS.API.DIRECT.GET.KV_bench.$KV.bench.key.", keys, b"")
        marked = b"\r\nNats-Sequence: "
        return timed(server, messages, lambda: in_turns(open_ones, messages, read, marked, window))


def list_keys(keys: int, server: peers.ServerProcess) -> Measured:
    """All keys, as ``keys()`` asks for them: a push consumer of headers alone."""
    with connections(server, 1) as open_ones:
        (client,) = open_ones
        bucket(client)
        write = partial(keyed, b"$KV.bench.key.", keys, PAYLOAD)
        in_turns(open_ones, keys, write, ACK_MARK, 4_000)
        config = {
            "deliver_subject": "deliver.keys",
            "deliver_policy": "last_per_subject",
            "filter_subject": "$KV.bench.>",
            "ack_policy": "none",
            "headers_only": True,
            "mem_storage": True,
            "max_ack_pending": -1,
            "num_replicas": 1,
        }
        client.socket.sendall(b"SUB deliver.keys 7\r\n")
        client.ping()

        def make(asker: RawConnection, number: int) -> bytes:
            body = json.dumps({"stream_name": "KV_bench", "config": config}).encode()
            return frame(b"$JS.API.CONSUMER.CREATE.KV_bench.keys", body, asker, number)

        def work() -> float:
            client.socket.sendall(make(client, 0))
            return in_turns(
                open_ones, keys, lambda _client, _number: b"", b"\r\nNats-Msg-Size: ", keys
            )

        return timed(server, keys, work)


# Core messages


def core(readers: int, messages: int, server: peers.ServerProcess, queue: bytes = b"") -> Measured:
    """One publisher; each message to all readers, or to one of a queue group."""
    name = b"core.subject"
    with connections(server, readers + 1) as open_ones:
        for reader in open_ones[1:]:
            reader.socket.sendall(b"SUB %b %b 5\r\n" % (name, queue))
            reader.ping()
        message = b"PUB %b %d\r\n%b\r\n" % (name, len(PAYLOAD), PAYLOAD)
        delivered = len(b"MSG %b 5 %d\r\n%b\r\n" % (name, len(PAYLOAD), PAYLOAD))
        copies = messages * (1 if queue else readers)
        work = partial(flow, open_ones[0], open_ones[1:], message, messages, copies * delivered)
        return timed(server, messages, work)


def request(messages: int, server: peers.ServerProcess) -> Measured:
    """One request at a time, answered by another connection of this process."""
    with connections(server, 2) as (asker, answerer):
        answerer.socket.sendall(b"SUB service 6\r\n")
        answerer.ping()

        def work() -> float:
            began = time.perf_counter()
            for _ in range(messages):
                asker.socket.sendall(b"PUB service %b 4\r\nping\r\n" % asker.inbox)
                received_until(answerer, b"ping\r\n")
                answerer.socket.sendall(b"PUB %b 4\r\npong\r\n" % asker.inbox)
                received_until(asker, b"pong\r\n")
            return time.perf_counter() - began

        return timed(server, messages, work)


def received_until(client: RawConnection, end: bytes) -> bytes:
    """Everything up to ``end``, which is the last that comes."""
    data = b""
    while not data.endswith(end):
        more = client.socket.recv(1 << 18)
        if not more:
            raise ConnectionError("the server closed the connection")
        data += more
    return data


def wildcards(patterns: int, messages: int, server: peers.ServerProcess) -> Measured:
    """Publishing to subjects that one of so many wildcards matches."""
    with connections(server, 2) as (reader, publisher):
        for start in range(0, patterns, 10_000):
            lines = [b"SUB w.%d.* %d\r\n" % (n, n + 10) for n in range(start, start + 10_000)]
            reader.socket.sendall(b"".join(lines))
        reader.ping()
        made = [
            (b"PUB w.%d.x 4\r\nbody\r\n" % n, len(b"MSG w.%d.x %d 4\r\nbody\r\n" % (n, n + 10)))
            for n in (number * 7919 % patterns for number in range(messages))
        ]
        expected = sum(size for _, size in made)

        def work() -> float:
            began = time.perf_counter()
            received = sent_bytes = 0
            for start in range(0, messages, 500):
                chunk = made[start : start + 500]
                publisher.socket.sendall(b"".join(text for text, _ in chunk))
                sent_bytes += sum(size for _, size in chunk)
                while sent_bytes - received > 200_000:
                    received += len(reader.socket.recv(1 << 18))
            while received < expected:
                received += len(reader.socket.recv(1 << 18))
            return time.perf_counter() - began

        return timed(server, messages, work)


def subscribing(patterns: int, server: peers.ServerProcess) -> Measured:
    with connections(server, 1) as (reader,):

        def work() -> float:
            began = time.perf_counter()
            for start in range(0, patterns, 10_000):
                lines = [b"SUB w.%d.* %d\r\n" % (n, n + 10) for n in range(start, start + 10_000)]
                reader.socket.sendall(b"".join(lines))
            reader.ping()
            return time.perf_counter() - began

        return timed(server, patterns, work)


# Consuming


def workers(clients: int, batch: int, messages: int, server: peers.ServerProcess) -> Measured:
    """So many connections on one consumer, each with one pull in flight; messages are acknowledged."""
    with connections(server, clients) as open_ones:
        admin = open_ones[0]
        stream(admin, "BENCH", "bench.>")
        admin.publish_acked(messages, 16_000, len(PAYLOAD))
        consumer(admin, max_ack_pending=4 * clients * batch)
        work = partial(pull_in_turns, open_ones, batch, messages)
        return timed(server, messages, work)


def consumer(connection: RawConnection, **config: Any) -> None:
    body = {"durable_name": "C", "ack_policy": "explicit", **config}
    connection.request("$JS.API.CONSUMER.CREATE.BENCH.C", {"stream_name": "BENCH", "config": body})


def pull_in_turns(
    clients: list[RawConnection], batch: int, messages: int, more: bytes = b""
) -> float:
    """Each client pulls, acknowledges what came in the write with its next pull, and so on.

    ``more`` stands in each request, too.
    """
    body = b'{"batch":%d,"expires":30000000000%b}' % (batch, more)
    subject = b"$JS.API.CONSUMER.MSG.NEXT.BENCH.C"
    acks = re.compile(rb"\$JS\.ACK\.[^ \r\n]+(?= )")
    began = time.perf_counter()
    taken, state = 0, {client: [b"", 0] for client in clients}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.socket.sendall(frame(subject, body, client, 0))
        while taken < messages:
            for key, _ in selector.select(30.0):
                client = key.data
                held: Any = state[client]
                data = held[0] + client.socket.recv(1 << 18)
                found = acks.findall(data)
                cut = data.rfind(found[-1]) + len(found[-1]) if found else 0
                held[0] = data[max(cut, len(data) - 256) :]
                held[1] += len(found)
                taken += len(found)
                out = [b"PUB %b 0\r\n\r\n" % ack for ack in found]
                if held[1] >= batch:
                    held[1] = 0
                    out.append(frame(subject, body, client, 0))
                if out:
                    client.socket.sendall(b"".join(out))
    return time.perf_counter() - began


def confirmed(messages: int, server: peers.ServerProcess) -> Measured:
    """``ack_sync``: one message pulled, acknowledged with a reply, and the next one."""
    with connections(server, 1) as (client,):
        stream(client, "BENCH", "bench.>")
        client.publish_acked(messages, 16_000, len(PAYLOAD))
        consumer(client)
        subject, body = b"$JS.API.CONSUMER.MSG.NEXT.BENCH.C", b'{"batch":1,"expires":30000000000}'

        def work() -> float:
            began = time.perf_counter()
            for _ in range(messages):
                client.socket.sendall(frame(subject, body, client, 0))
                got = received_until(client, PAYLOAD + b"\r\n")
                at = got.rindex(b"$JS.ACK.")
                ack = got[at : got.index(b" ", at)]
                client.socket.sendall(frame(ack, b"+ACK", client, 0))
                received_until(client, b" 0\r\n\r\n")
            return time.perf_counter() - began

        return timed(server, messages, work)


# Memory


def left_behind(streams: int, messages: int, server: peers.ServerProcess) -> Measured:
    """MiB of the server, as ``messages``, after streams were filled and deleted again."""
    with connections(server, 1) as (client,):
        for number in range(streams):
            stream(client, f"BENCH-{number}", f"bench.{number}.>")
            names = partial("bench.{}.{}".format, number)
            client.publish_acked(messages, 16_000, len(PAYLOAD), names)
            client.request(f"$JS.API.STREAM.DELETE.BENCH-{number}")
    return cpu.resident_bytes(server.process.pid) >> 20, 1.0, 0.0


ROWS: dict[str, Row] = {
    "awaited publish, 1 connection": partial(awaited, 1, 1_500),
    "awaited publish, 10 connections": partial(awaited, 10, 6_000),
    "awaited publish, 100 connections": partial(awaited, 100, 30_000),
    "awaited publish, 1,000 connections": partial(awaited, 1_000, 30_000),
    "100 streams, window 1,000": partial(many_streams, 100, 1_000, 20_000),
    "1,000 streams, window 1,000": partial(many_streams, 1_000, 1_000, 6_000),
    "1,000 streams, window 16,000": partial(many_streams, 1_000, 16_000, 32_000),
    "1,000 streams, 100 connections": partial(many_streams, 1_000, 1, 6_000, clients=100),
    "creating streams": partial(creating, 200),
    "key-value put, 10,000 keys": partial(put, 10_000, 100_000, 1, 4_000),
    "key-value put, 20 awaited": partial(put, 1_000, 20_000, 20, 1),
    "key-value put, expecting the last": partial(expecting, 10_000, 50_000, 4_000),
    "key-value get, one at a time": partial(get, 10_000, 8_000, 1),
    "key-value get, 100 in flight": partial(get, 10_000, 80_000, 100),
    "key-value, list of 100,000 keys": partial(list_keys, 100_000),
    "core, 1 to 1": partial(core, 1, 400_000),
    "core, 1 to 10": partial(core, 10, 150_000),
    "core, 1 to 100": partial(core, 100, 20_000),
    "core, queue of 10": partial(core, 10, 300_000, queue=b"workers"),
    "request, one at a time": partial(request, 5_000),
    "90,000 wildcards, publish": partial(wildcards, 90_000, 360_000),  # four times on each
    "10,000 wildcards, publish": partial(wildcards, 10_000, 120_000),
    "90,000 wildcards, subscribe": partial(subscribing, 90_000),
    "100 workers, batch 1": partial(workers, 100, 1, 40_000),
    "100 workers, batch 10": partial(workers, 100, 10, 100_000),
    "ack_sync, one at a time": partial(confirmed, 2_000),
    "one subject, window 16,000": partial(windowed, 100, 1, 300_000),
    "10,000 subjects, window 16,000": partial(windowed, 100, 10_000, 300_000),
    "new subjects, window 16,000": partial(windowed, 100, 1 << 40, 300_000),
    "payloads of 1 KiB": partial(windowed, 1_024, 1, 150_000),
    "payloads of 16 KiB": partial(windowed, 16_384, 1, 20_000),
    "payloads of 256 KiB": partial(windowed, 262_144, 1, 3_000),
    "atomic batches of 500": partial(atomic, 500, 100_000),
    "expecting the last sequence": partial(expecting_last, 50_000, 4_000),
    "memory after deleting streams": partial(left_behind, 20, 50_000),
}
