"""More rows of ``survey``: pairs, followers of a tail, overflow, a million keys, and a server at rest."""

from __future__ import annotations

import re
import selectors
import time
from functools import partial

import cpu
import peers
from rawload import connections
from rawsocket import RawConnection
from survey_rows import (
    PAYLOAD,
    Measured,
    Row,
    consumer,
    frame,
    get,
    list_keys,
    pull_in_turns,
    put,
    stream,
    timed,
)
from waiting import elapse_here

TAIL_PER_S = 10_000
TAIL_S = 3.0
REST_S = 5.0
_STAMPED = re.compile(rb"MSG bench\.tail [^\r]* 20\r\n(\d{20})\r\n")
PAIR_AHEAD = 400
"""So many messages of each pair are on their way at most."""


def pairs(count: int, messages: int, server: peers.ServerProcess) -> Measured:
    """So many publishers, each with a subscriber of its own."""
    at_once = 100
    with connections(server, 2 * count) as open_ones:
        writers, readers = open_ones[:count], open_ones[count:]
        chunks, sizes = [], []
        for number, reader in enumerate(readers):
            reader.socket.sendall(b"SUB pair.%d 5\r\n" % number)
            reader.ping()
            message = b"pair.%d %d\r\n%b\r\n" % (number, len(PAYLOAD), PAYLOAD)
            chunks.append(b"PUB " + message)
            sizes.append(len(b"MSG pair.%d 5 %d\r\n%b\r\n" % (number, len(PAYLOAD), PAYLOAD)))
        each = messages // count

        def work() -> float:
            began = time.perf_counter()
            sent, received = [0] * count, [0] * count
            left = count
            with selectors.DefaultSelector() as selector:
                for number, reader in enumerate(readers):
                    selector.register(reader.socket, selectors.EVENT_READ, number)
                    writers[number].socket.sendall(chunks[number] * at_once)
                    sent[number] = at_once
                while left:
                    for key, _ in selector.select(30.0):
                        number = key.data
                        received[number] += len(readers[number].socket.recv(1 << 18))
                        got = received[number] // sizes[number]
                        while sent[number] < each and sent[number] - got < PAIR_AHEAD - at_once:
                            writers[number].socket.sendall(chunks[number] * at_once)
                            sent[number] += at_once
                        if got >= each:
                            selector.unregister(readers[number].socket)
                            left -= 1
            return time.perf_counter() - began

        return timed(server, each * count, work)


def overflow(count: int, batch: int, messages: int, server: peers.ServerProcess) -> Measured:
    """Workers of a priority group with the policy overflow, who help as soon as one message waits."""
    with connections(server, count) as open_ones:
        stream(open_ones[0], "BENCH", "bench.>")
        open_ones[0].publish_acked(messages, 16_000, len(PAYLOAD))
        consumer(open_ones[0], priority_policy="overflow", priority_groups=["g"])
        more = b',"group":"g","min_pending":1'
        work = partial(pull_in_turns, open_ones, batch, messages - count * batch, more)
        return timed(server, messages - count * batch, work)


def tail(followers: int, share: float, server: peers.ServerProcess) -> Measured:
    """A quantile of the milliseconds from a publish to its arrival at a follower, at 10,000 messages/s."""
    total = round(TAIL_PER_S * TAIL_S)
    waits: list[int] = []
    with connections(server, followers + 1) as (writer, *readers):
        stream(writer, "BENCH", "bench.>")
        rest: dict[RawConnection, bytes] = dict.fromkeys(readers, b"")
        with selectors.DefaultSelector() as selector:
            selector.register(writer.socket, selectors.EVENT_READ, None)
            for number, reader in enumerate(readers):
                _follow(reader, number)
                selector.register(reader.socket, selectors.EVENT_READ, reader)
            before, began = cpu.of_process(server.process.pid), time.perf_counter()
            sent = 0
            while len(waits) < total * followers:
                passed = time.perf_counter() - began
                if passed > 10 * TAIL_S:
                    raise TimeoutError(f"{len(waits)} of {total * followers} messages came in time")
                due = min(total, int(passed * TAIL_PER_S)) - sent
                if due > 0:
                    stamp = b"%020d" % time.perf_counter_ns()
                    line = b"PUB bench.tail %b 20\r\n%b\r\n" % (writer.inbox, stamp)
                    writer.socket.sendall(line * due)
                    sent += due
                for key, _ in selector.select(0.0005):
                    data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                    if key.data is not None:
                        rest[key.data] = _arrived(rest[key.data] + data, waits)
        spent = cpu.of_process(server.process.pid) - before
    waits = sorted(waits[len(waits) // 5 :])  # without the beginning
    return round(waits[int(len(waits) * share)] / 1e3), 1000.0, spent


def _follow(reader: RawConnection, number: int) -> None:
    config = {"durable_name": f"C{number}", "ack_policy": "none"}
    subject = f"$JS.API.CONSUMER.CREATE.BENCH.C{number}"
    reader.request(subject, {"stream_name": "BENCH", "config": config})
    ask = b"$JS.API.CONSUMER.MSG.NEXT.BENCH.C%d" % number
    reader.socket.sendall(frame(ask, b'{"batch":1000000,"expires":60000000000}', reader, 0))


def _arrived(data: bytes, waits: list[int]) -> bytes:
    """Note how long the messages took that are whole, in ns; returns the rest."""
    now_ns, end = time.perf_counter_ns(), 0
    for found in _STAMPED.finditer(data):
        waits.append(now_ns - int(found[1]))
        end = found.end()
    return data[end:]


def at_rest(count: int, streams: int, server: peers.ServerProcess) -> Measured:
    """Percent of a core with so many connections and streams, while nothing happens."""
    with connections(server, count) as open_ones:
        for number in range(streams):
            stream(open_ones[0], f"BENCH-{number}", f"bench.{number}")
        elapse_here(1.0, "what the streams' making has left is done")
        before = cpu.of_process(server.process.pid)
        elapse_here(REST_S, "it is to be at rest meanwhile")
        spent = cpu.of_process(server.process.pid) - before
    return round(100_000 * spent / REST_S), 1000.0, spent


def resident(keys: int, server: peers.ServerProcess) -> Measured:
    """MiB of the server, as ``messages``, with a bucket of so many keys."""
    put(keys, 1, 1, 1, server)
    return cpu.resident_bytes(server.process.pid) >> 20, 1.0, 0.0


MORE: dict[str, Row] = {
    "core, 50 pairs": partial(pairs, 50, 500_000),
    "100 workers, overflow": partial(overflow, 100, 10, 100_000),
    "key-value put, 1,000,000 keys": partial(put, 1_000_000, 100_000, 1, 4_000),
    "key-value get of 1,000,000 keys": partial(get, 1_000_000, 80_000, 100),
    "key-value, list of 1,000,000 keys": partial(list_keys, 1_000_000),
    "memory with 1,000,000 keys": partial(resident, 1_000_000),
    "ms to a follower, p50": partial(tail, 1, 0.5),
    "ms to a follower, p99": partial(tail, 1, 0.99),
    "ms to 20 followers, p50": partial(tail, 20, 0.5),
    "ms to 20 followers, p99": partial(tail, 20, 0.99),
    "% of a core, 1,000 connections, 1,000 streams": partial(at_rest, 1_000, 1_000),
}
