"""The numbers of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
from urllib.parse import urlsplit

import pytest

import guides
from headrace import connect, sync
from headrace.client.metrics import ConnectionStats, MetricsServer, prometheus
from headrace.embedded import Broker
from headrace.errors import BufferFullError, ConfigurationError, DisconnectedError
from waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("direct", [False, True], ids=["socket", "in process"])
async def test_everything_a_connection_does_is_counted(direct: bool) -> None:
    async with Broker(port=-1) as broker:
        connecting = broker.connect() if direct else connect(broker.client_url)
        async with connecting as connection:
            assert connection.stats().connected
            heard = await connection.subscribe("x", pending_messages=3)
            for _ in range(5):
                await connection.publish("x", b"1234567890")
            await connection.flush()
            stats = connection.stats()
            assert (stats.in_messages, stats.out_messages) == (5, 5)
            assert stats.in_bytes >= 50
            assert stats.out_bytes >= 50
            assert (stats.subscriptions, stats.pending_messages, stats.pending_bytes) == (1, 3, 30)
            assert (stats.dropped_messages, stats.errors) == (2, 1)
            await heard.unsubscribe()
            js = connection.jetstream()
            stream = await js.create_stream(name="S", subjects=["s"], storage="memory")
            consumer = await stream.create_consumer(durable_name="c")
            async with js.publisher(retries=0, on_failure=lambda failure: None) as publisher:
                await publisher.send_many([("s", b"%d" % n) for n in range(10)])
                await publisher.flush()
                await publisher.send("nowhere", b"x")
                await publisher.flush()
                open_stats = connection.stats()
            await js.publish("s", b"awaited")
            batch = await consumer.fetch(8)
            batch[0].ack()
            batch[1].nak(delay=60)
            batch.ack()
            await (await consumer.fetch(1))[0].ack_sync()
            await connection.flush()
            stats = connection.stats()
            assert (open_stats.publishes, open_stats.publishes_acked) == (11, 10)
            assert open_stats.publishes_failed == 1
            assert (stats.publishes, stats.publishes_acked, stats.publishes_failed) == (11, 10, 1)
            assert (stats.answers, stats.pulls) == (8, 2)
            assert stats.out_messages == 5 + 11 + 8
            assert stats.requests == 4  # two creations, an awaited publish, an ack_sync
            assert (stats.requests_in_flight, stats.publishes_in_flight) == (0, 0)
        assert not connection.stats().connected
        assert connection.stats().in_bytes >= stats.in_bytes


async def test_what_is_lost_with_a_link_stays_counted() -> None:
    async with (
        Broker(port=-1) as broker,
        connect(broker.client_url, reconnect_wait=0.005) as connection,
    ):
        await connection.subscribe("x")
        await connection.publish("x", b"12345")
        await connection.flush()
        before = connection.stats()
        assert connection._session.link is not None
        connection._session.link.abort(DisconnectedError("by the test"))
        await until(lambda: connection.reconnects, within=5)
        after = connection.stats()
        assert after.reconnects == 1
        assert after.in_bytes >= before.in_bytes
        assert after.in_messages == before.in_messages == 1


async def test_a_scraper_reads_them_as_text() -> None:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        await connection.flush()
        stats = connection.stats()
    labels = {"connection": 'a "quoted"\nname\\', "zone": "eu"}
    text = prometheus([(stats, labels), (stats, {})])
    assert "# TYPE headrace_client_reconnects_total counter\n" in text
    assert "# TYPE headrace_client_connected gauge\n" in text
    assert (
        r'headrace_client_connected{connection="a \"quoted\"\nname\\",zone="eu"} 1' + "\n" in text
    )
    assert "\nheadrace_client_connected 1\n" in text
    for line in text.splitlines():
        assert line.startswith(("# TYPE ", "# HELP ")) or re.fullmatch(r"\w+(\{.*\})? \d+", line)
    with pytest.raises(ConfigurationError, match="label '1st'"):
        prometheus([(stats, {"1st": ""})])
    assert prometheus([]).count("# TYPE") == len(ConnectionStats.__slots__)


def test_their_names_are_promised() -> None:
    """Dashboards and alerts stand on these names: one that changes needs an entry in the changelog."""
    page = (guides.ROOT / "docs" / "metrics.md").read_text()
    promised = set(re.findall(r"`(headrace_client_\w+)`", page))
    names = re.findall(r"# TYPE (\w+) ", prometheus([]))
    assert set(names) == promised
    assert re.findall(r"# HELP (\w+) [A-Z].*\.\n", prometheus([])) == names


async def fetched(url: str, method: str = "GET") -> tuple[int, str]:
    """Status and body of a page, without a thread."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"{method} {where.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert f"Content-Length: {len(body)}" in head or method == "HEAD"
    return int(head.split()[1]), body


async def test_a_scraper_fetches_them(free_port: int) -> None:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        connections = {"orders": connection}
        async with MetricsServer(connections, port=free_port) as server:
            assert server.url == f"http://127.0.0.1:{free_port}/metrics"
            status, text = await fetched(server.url)
            assert (status, 'headrace_client_connected{connection="orders"} 1' in text) == (
                200,
                True,
            )
            assert (await fetched(server.url, "HEAD")) == (200, "")
            assert (await fetched(server.url.replace("metrics", "")))[0] == 404
            connections.clear()
            assert "orders" not in (await fetched(server.url))[1]
            with pytest.raises(ConfigurationError, match="cannot be served"):
                async with MetricsServer({}, port=free_port):
                    pass
            # One scraper too many is closed at once, and one that asks for too much.
            idle = [await asyncio.open_connection("127.0.0.1", free_port) for _ in range(17)]
            assert await idle[16][0].read() == b""
            idle[0][1].write(b"x" * 100_000)
            with contextlib.suppress(ConnectionError):
                assert await idle[0][0].read() == b""
            for _, writer in idle:
                writer.close()


def test_the_blocking_connection_has_them_too() -> None:
    with sync.Broker(port=-1) as broker:
        with broker.connect() as connection:
            connection.publish("x")
            connection.flush()
            assert connection.stats().out_messages == 1
        assert not connection.stats().connected


async def test_what_was_refused_is_not_counted() -> None:
    async with Broker(port=-1) as broker, broker.connect(outbound_bytes=1_000) as connection:
        connection._session.outbox.pause()
        with pytest.raises(BufferFullError):
            for _ in range(100):
                connection.publish_nowait("x", b"x" * 1_000)
        connection._session.outbox.resume()
        await connection.flush()
        assert connection.stats().out_messages == 3
