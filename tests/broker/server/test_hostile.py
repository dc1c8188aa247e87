"""Clients that mean harm: each meets a limit, and the broker serves the others meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import connect
from headrace.broker.core.auth.authentication import User
from headrace.broker.core.options import AccountOptions, JetStreamLimits
from headrace.broker.server import Broker
from headrace.pattern_tree import PATTERNS_MAX
from machine import pieces
from waiting import until

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Raw:
    """A client made of a socket; small buffers, so that it is soon a slow one."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setblocking(False)
        self.broker = broker
        self.loop = asyncio.get_running_loop()

    async def open(self, *, connect: bytes = CONNECT) -> Raw:
        await self.loop.sock_connect(self.socket, ("127.0.0.1", self.broker.port))
        await self.loop.sock_sendall(self.socket, connect)
        return self

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.socket, data)

    async def hear(self, end: bytes = b"") -> bytes:
        """What comes until it ends with ``end``, or until the broker hangs up."""
        heard = b""
        async with asyncio.timeout(10):
            while not (end and heard.endswith(end)):
                data = await self.loop.sock_recv(self.socket, 1 << 16)
                if not data:
                    break
                heard += data
        return heard

    async def ask(self, verb: str, body: bytes) -> dict[str, Any]:
        """One JetStream call."""
        await self.send(b"PUB $JS.API.%b r %d\r\n%b\r\n" % (verb.encode(), len(body), body))
        heard = await self.hear(b"}\r\n")
        document: dict[str, Any] = json.loads(heard[heard.index(b"\r\n", heard.index(b"MSG r")) :])
        return document


@asynccontextmanager
async def raw(broker: Broker, **options: bytes) -> AsyncIterator[Raw]:
    client = await Raw(broker).open(**options)
    try:
        yield client
    finally:
        client.socket.close()


async def _is_served(broker: Broker) -> None:
    async with connect(broker.client_url) as client:
        subscription = await client.subscribe("still.there")
        await client.publish("still.there", b"x")
        assert (await subscription.next(timeout=5)).payload == b"x"


async def test_who_asks_much_and_never_listens_is_cut_off() -> None:
    async with Broker(outbound_bytes_max=1 << 20) as broker, raw(broker) as client:
        with pytest.raises(ConnectionError):
            while True:
                await client.send(b"PING\r\n" * 10_000)
        await _is_served(broker)
        assert broker.hub.slow_consumers == 1


async def test_who_lets_messages_pile_up_is_cut_off_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headrace.broker")
    users = [User("ana", "s3cret")]
    login = b'CONNECT {"user":"ana","pass":"s3cret","name":"lazy","verbose":false}\r\n'
    async with (
        Broker(outbound_bytes_max=1 << 20, users=users) as broker,
        raw(broker, connect=login) as client,
    ):
        await client.send(b"SUB flood 1\r\n")
        async with connect(broker.client_url, user="ana", password="s3cret") as publisher:
            for _ in range(40):
                await publisher.publish("flood", bytes(500_000))
            await publisher.flush()
        await client.hear()
    (line,) = [r.message for r in caplog.records if "Slow Consumer" in r.message]
    assert re.fullmatch(
        r'127\.0\.0\.1:\d+ - cid:\d+ - "lazy" - Slow Consumer Detected \(Pending Bytes\), user "ana"',
        line,
    )


async def test_who_lets_messages_pile_up_is_cut_off_and_told() -> None:
    async with Broker(outbound_bytes_max=1 << 20) as broker, raw(broker) as client:
        await client.send(b"SUB flood 1\r\n")
        async with connect(broker.client_url) as publisher:
            for _ in range(40):
                await publisher.publish("flood", bytes(500_000))
            await publisher.flush()
        heard = await client.hear()
        assert len(heard) < 20_000_000
        assert broker.hub.slow_consumers == 1
        await _is_served(broker)


async def test_publishing_a_flood_without_reading_holds_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with Broker(outbound_bytes_max=1 << 20) as broker, raw(broker) as client:
        for _ in range(200):
            await client.send(b"PUB nobody inbox 1000\r\n%b\r\n" % bytes(1000) * 100)
        await _is_served(broker)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024  # kilobytes


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"S","metadata":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"name":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"name":"S","subjects":[' + b'"a",' * 200_000 + b'"b"]}',
        b'{"name":"S","description":"' + b"x" * 900_000 + b'"}',
        b'{"name":"' + b"x" * 900_000 + b'"}',
        json.dumps({"name": "S", "metadata": {str(n): "x" for n in range(50_000)}}).encode(),
        json.dumps(
            {"name": "S", "subjects": [f"{n}.a" for n in range(9_000)] + [f"*.b{n}" for n in range(9_000)]}
        ).encode(),
        b"\xff" * 900_000,
    ],
    ids=["arrays", "objects", "subjects", "description", "name", "metadata", "stars", "bytes"],
)  # fmt: skip
async def test_a_monstrous_request_is_refused_soon(body: bytes) -> None:
    async with Broker() as broker, raw(broker) as client:
        await client.send(b"SUB r 1\r\nPING\r\n")
        await client.hear(b"PONG\r\n")
        start = time.process_time()
        answer = await client.ask("STREAM.CREATE.S", body)
        assert answer["error"]["code"] in (400, 500)
        assert pieces(time.process_time() - start) < 800
        assert not broker.hub.engine.registry.streams  # type: ignore[union-attr]


def many_filters(count: int) -> bytes:
    filters = [f"s.{n}.*" for n in range(count)]
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": filters}
    return json.dumps({"stream_name": "S", "config": config}).encode()


async def test_many_filters_are_served_soon_and_more_are_refused() -> None:
    async with Broker() as broker, connect(broker.client_url) as client:
        await client.jetstream().create_stream(name="S", subjects=["s.>"])
        async with raw(broker) as other:
            await other.send(b"SUB r 1\r\nPING\r\n")
            await other.hear(b"PONG\r\n")
            start = time.process_time()
            made = await other.ask("CONSUMER.CREATE.S.C", many_filters(PATTERNS_MAX))
            assert made["name"] == "C"
            assert pieces(time.process_time() - start) < 200
            refused = await other.ask("CONSUMER.CREATE.S.C", many_filters(PATTERNS_MAX + 1))
            assert refused["error"]["err_code"] == 10012
            assert "too many subjects" in refused["error"]["description"]
            subjects = [f"t.{n}" for n in range(PATTERNS_MAX + 1)]
            body = json.dumps({"name": "T", "subjects": subjects}).encode()
            refused = await other.ask("STREAM.CREATE.T", body)
            assert refused["error"]["err_code"] == 10052


async def test_a_flood_of_streams_and_consumers_ends_at_the_limits_of_the_account() -> None:
    limits = JetStreamLimits(max_streams=20, max_consumers=10)
    account = AccountOptions(name="A", jetstream=limits)
    users = [User("u", "p", account="A")]
    log_in = CONNECT.replace(b"{", b'{"user":"u","pass":"p",')
    async with Broker(accounts=[account], users=users) as broker, raw(broker, connect=log_in) as c:
        await c.send(b"SUB r 1\r\nPING\r\n")
        await c.hear(b"PONG\r\n")
        refused = set()
        for n in range(30):
            body = json.dumps({"name": f"S{n}", "subjects": [f"s{n}"]}).encode()
            answer = await c.ask(f"STREAM.CREATE.S{n}", body)
            refused.add(answer.get("error", {}).get("err_code"))
        for n in range(20):
            body = json.dumps({"stream_name": "S0", "config": {"durable_name": f"C{n}"}}).encode()
            answer = await c.ask(f"CONSUMER.CREATE.S0.C{n}", body)
            refused.add(answer.get("error", {}).get("err_code"))
        assert refused == {None, 10027, 10026}


async def test_waiting_pulls_beyond_their_number_are_refused() -> None:
    async with Broker() as broker, connect(broker.client_url) as client:
        stream = await client.jetstream().create_stream(name="S", subjects=["s"])
        await stream.create_consumer(durable_name="C", ack_policy="explicit", max_waiting=10)
        async with raw(broker) as other:
            await other.send(
                b"SUB r 1\r\n" + b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C r 1\r\n1\r\n" * 50
            )
            await other.send(b"PING\r\n")
            heard = await other.hear(b"PONG\r\n")
            assert heard.count(b"409 Exceeded MaxWaiting") == 40


async def test_subscriptions_have_a_number_and_a_depth() -> None:
    async with Broker(subscriptions_max=1000) as broker, raw(broker) as client:
        await client.send(b"SUB %b 0\r\n" % b".".join([b"a"] * 257))
        await client.send(b"SUB %b 1\r\n" % b".".join([b"a"] * 256))
        for start in range(2, 1202, 200):
            await client.send(
                b"".join(b"SUB s.%d %d\r\n" % (n, n) for n in range(start, start + 200))
            )
        await client.send(b"PING\r\n")
        heard = await client.hear(b"PONG\r\n")
        assert heard.count(b", too many tokens'\r\n") == 1
        assert heard.count(b"-ERR 'maximum subscriptions exceeded'") == 201
        assert broker.hub.router.subscriptions == 1000


async def test_ever_new_subjects_leave_nothing_behind() -> None:
    async with Broker() as broker, raw(broker) as client:
        for start in range(0, 120_000, 10_000):
            lines = b"".join(b"PUB a.%d.b 0\r\n\r\n" % n for n in range(start, start + 10_000))
            await client.send(lines)
        await client.send(b"PING\r\n")
        await client.hear(b"PONG\r\n")
        assert len(broker.hub.router.exact) <= 32_768


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"HPUB s r 100000 100001\r\nNATS/1.0\r\n%b\r\n\r\nx\r\n" % (b"a: b\r\n" * 16_664 + b"c: dd"),
         b'"err_code":10097'),
        (b"HPUB s r 9999999 9999999\r\n", b"-ERR 'Maximum Payload Violation'"),
        (b"PUB s 99999999999999999999\r\n", b""),
        (b"HPUB s r 20 10\r\n", b""),
        (b"SUB " + b"x" * 5000, b"-ERR 'maximum control line exceeded'"),
        (b"CONNECT " + b"[" * 4000 + b"\r\n", b""),
        (b"CONNECT " + b'{"a":' * 700 + b"\r\n", b""),
        (b"\x00" * 100_000, b"-ERR "),
    ],
    ids=["headers", "payload", "size", "sizes", "line", "arrays", "objects", "zeros"],
)  # fmt: skip
async def test_a_frame_beyond_the_limits_is_answered_and_others_go_on(
    sent: bytes, answer: bytes
) -> None:
    async with Broker() as broker, connect(broker.client_url) as other:
        await other.jetstream().create_stream(name="S", subjects=["s"])
        async with raw(broker) as client:
            await client.send(b"SUB r 1\r\nPING\r\n")
            await client.hear(b"PONG\r\n")
            try:
                await client.send(sent)
                heard = await client.hear(b"}\r\n")
            except ConnectionError:
                heard = answer  # what it had to say was lost over what it did not read
            assert answer in heard
        await _is_served(broker)


async def test_a_stranger_that_dawdles_is_cut_off(tmp_path: Any) -> None:
    async with Broker(users=[User("a", "b")], auth_timeout=0.2) as broker:
        async with raw(broker, connect=b"CONN") as client:
            heard = await client.hear()
        assert heard.endswith(b"-ERR 'Authentication Timeout'\r\n")


async def test_five_hundred_idle_strangers_do_not_slow_others_down() -> None:
    async with Broker(users=[User("a", "b")], auth_timeout=5, connections_max=400) as broker:
        idle = [await Raw(broker).open(connect=b"") for _ in range(500)]
        await until(lambda: not (len(broker.hub.sessions) > 400), within=5)
        refused = 0
        for client in idle[400:]:
            refused += b"maximum connections exceeded" in await client.hear()
            client.socket.close()
        assert refused == 100
        for client in idle[:400]:
            client.socket.close()
        await until(lambda: not broker.hub.sessions, within=5)
        async with connect(broker.client_url, user="a", password="b") as guest:
            await guest.flush()
