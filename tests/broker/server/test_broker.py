"""The broker over real sockets: life, limits, raw bytes."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import Broker, BrokerOptions
from headrace.broker.server.config.options import WebSocketOptions
from headrace.broker.server.connections import connection as connection_module
from headrace.errors import ConfigurationError
from late_comers import TURNS, is_hung_up_on
from waiting import until

PLAIN = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Raw:
    """A socket that speaks lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.info: dict[str, Any] = {}

    @classmethod
    async def connect(cls, broker: Broker, *, greeted: bool = True) -> Raw:
        raw = cls(*await asyncio.open_connection("127.0.0.1", broker.port))
        if greeted:
            raw.info = json.loads((await raw.reader.readline())[5:])
        return raw

    async def ask(self, data: bytes) -> bytes:
        """Send, then everything up to the answer to a PING."""
        self.writer.write(data + b"PING\r\n")
        async with asyncio.timeout(5):
            return (await self.reader.readuntil(b"PONG\r\n"))[:-6]

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        async with asyncio.timeout(5):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass  # the broker was quicker


async def test_a_message_travels_from_socket_to_socket(no_leaks: None) -> None:
    async with Broker() as broker:
        one, two = await Raw.connect(broker), await Raw.connect(broker)
        assert one.info["port"] == broker.port
        assert await one.ask(PLAIN + b"SUB orders.* 7\r\n") == b""
        assert await two.ask(PLAIN + b"PUB orders.new 5\r\nhello\r\n") == b""
        assert await one.ask(b"") == b"MSG orders.new 7 5\r\nhello\r\n"
        await one.close()
        await two.close()


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("carrier", ["nats", "websocket"])
async def test_whoever_is_accepted_while_a_broker_stops_is_hung_up_on(
    carrier: str, turns: int, no_leaks: None
) -> None:
    broker = Broker(port=0, websocket=WebSocketOptions(port=0))
    await broker.start()
    url = broker.client_url if carrier == "nats" else broker.websocket_url
    assert url is not None
    port = int(url.rpartition(":")[2])
    assert await is_hung_up_on(port, turns, broker.stop)


async def test_stopping_with_clients_connected_closes_them_and_leaves_nothing(
    no_leaks: None,
) -> None:
    async with Broker(monitor_port=0) as broker:
        clients = [await Raw.connect(broker) for _ in range(3)]
        await clients[0].ask(PLAIN)
    for client in clients:
        assert await client.rest() == b""
        await client.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", broker.port)
    await broker.stop()  # once more does nothing


async def test_what_was_sent_before_an_error_arrives_before_it_and_then_the_end() -> None:
    async with Broker() as broker:
        raw = await Raw.connect(broker)
        raw.writer.write(PLAIN + b"SUB a 1\r\nPUB a 1\r\nx\r\nNONSENSE\r\n" + b"PING\r\n" * 10_000)
        assert await raw.rest() == b"MSG a 1 1\r\nx\r\n-ERR 'Unknown Protocol Operation'\r\n"
        await raw.close()


async def test_a_script_that_hangs_up_at_once_still_gets_its_answers() -> None:
    async with Broker() as broker:
        raw = await Raw.connect(broker)
        raw.writer.write(PLAIN + b"PING\r\n")
        raw.writer.write_eof()
        assert await raw.rest() == b"PONG\r\n"
        await raw.close()


async def test_one_connection_too_many_is_told_so() -> None:
    async with Broker(connections_max=1) as broker:
        first = await Raw.connect(broker)
        second = await Raw.connect(broker)
        assert await second.rest() == b"-ERR 'maximum connections exceeded'\r\n"
        assert await first.ask(PLAIN) == b""
        await first.close()
        await second.close()
        third = await Raw.connect(broker)
        assert await third.ask(PLAIN) == b""
        await third.close()


async def test_silence_instead_of_credentials_ends_the_connection() -> None:
    async with Broker(token="t", auth_timeout=0.05) as broker:
        raw = await Raw.connect(broker)
        assert raw.info["auth_required"] is True
        assert await raw.rest() == b"-ERR 'Authentication Timeout'\r\n"
        await raw.close()


async def test_a_silent_client_is_pinged() -> None:
    async with Broker(ping_interval=0.02) as broker:
        raw = await Raw.connect(broker)
        heard = await raw.rest()
        assert heard == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
        await raw.close()


async def test_a_reader_that_does_not_read_is_let_go_and_others_are_served() -> None:
    async with Broker(outbound_bytes_max=2 * 1024 * 1024) as broker:
        slow, fast, publisher = [await Raw.connect(broker) for _ in range(3)]
        slow.writer.write(PLAIN + b"SUB a 1\r\nPING\r\n")
        await slow.reader.readuntil(b"PONG\r\n")
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await fast.ask(PLAIN + b"SUB b 1\r\n")
        payload = bytes(256 * 1024)
        message = b"PUB a %d\r\n%b\r\n" % (len(payload), payload)
        for _ in range(60):
            await publisher.ask(PLAIN + message)
            if broker.hub.slow_consumers:
                break
        assert broker.hub.slow_consumers == 1
        await publisher.ask(b"PUB b 1\r\nx\r\n")
        assert await fast.ask(b"") == b"MSG b 1 1\r\nx\r\n"
        for raw in (slow, fast, publisher):
            await raw.close()


async def test_a_reader_that_takes_nothing_for_long_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "STALLED_S", 0.05)
    async with Broker() as broker:
        slow, publisher = await Raw.connect(broker), await Raw.connect(broker)
        await slow.ask(PLAIN + b"SUB a 1\r\n")
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        payload = bytes(1024 * 1024)
        await publisher.ask(PLAIN + (b"PUB a %d\r\n%b\r\n" % (len(payload), payload)) * 12)
        await until(lambda: broker.hub.slow_consumers != 0, within=5)
        await slow.close()
        await publisher.close()


async def test_many_messages_of_every_size_come_through_whole() -> None:
    async with Broker() as broker:
        raw = await Raw.connect(broker)
        await raw.ask(PLAIN + b"SUB a 1\r\n")
        sizes = [0, 1, 100, 32_767, 32_769, 200_000, 1_048_576, 3]
        expected = b""
        for size in sizes:
            payload = bytes([size % 251]) * size
            raw.writer.write(b"PUB a %d\r\n%b\r\n" % (size, payload))
            expected += b"MSG a 1 %d\r\n%b\r\n" % (size, payload)
        heard = await raw.reader.readexactly(len(expected))
        assert heard == expected
        await raw.close()


async def test_a_fault_of_ours_ends_that_connection_alone_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError

    async with Broker() as broker:
        broker.hub.router.add_sink(b"broken", broken)
        victim, other = await Raw.connect(broker), await Raw.connect(broker)
        victim.writer.write(PLAIN + b"PUB broken 1\r\nx\r\n")
        assert await victim.rest() == b"-ERR 'Internal Error'\r\n"
        assert await other.ask(PLAIN) == b""
        await victim.close()
        await other.close()
    assert "ZeroDivisionError" in caplog.text


async def test_secrets_are_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Broker(user="ann", password="s3cret") as broker:
        raw = await Raw.connect(broker)
        raw.writer.write(b'CONNECT {"user":"ann","pass":"s3cret"}\r\nPING\r\n')
        await raw.reader.readuntil(b"PONG\r\n")
        shown = repr(broker) + repr(broker.options) + repr(broker.hub.sessions) + broker.client_url
        await raw.close()
    assert "s3cret" not in shown + caplog.text
    assert "ann" in repr(broker.options)


async def test_strangers_are_refused_unless_they_authenticate_or_it_is_wanted() -> None:
    with pytest.raises(ConfigurationError, match="can be reached from other machines"):
        await Broker(host="0.0.0.0").start()
    async with Broker(host="0.0.0.0", token="t") as broker:
        assert broker.client_url == f"nats://127.0.0.1:{broker.port}"
    async with Broker(host="0.0.0.0", insecure=True):
        pass
    async with Broker(host="localhost"):
        pass


async def test_a_busy_port_is_one_clear_sentence(tmp_path: Path, no_leaks: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = f"cannot listen on 127.0.0.1:{port}: another process is listening there"
        with pytest.raises(ConfigurationError, match=sentence):
            await Broker(port=port).start()
        with pytest.raises(ConfigurationError, match=sentence):
            await Broker(monitor_port=port).start()


async def test_an_unknown_host_is_one_clear_sentence() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot find 'no such host'"):
        await Broker(host="no such host", insecure=True).start()


async def test_the_ipv6_loopback_works_where_there_is_one() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    async with Broker(host="::1") as broker:
        assert broker.client_url == f"nats://[::1]:{broker.port}"
        reader, writer = await asyncio.open_connection("::1", broker.port)
        assert (await reader.readline()).startswith(b"INFO ")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"port": 70_000}, "port: 70000; accepted are 1 to 65535, and 0 or -1"),
        ({"monitor_port": -2}, "monitor_port: -2"),
        ({"host": ""}, "host: empty"),
        ({"max_payload": 0}, "max_payload: 0; accepted is more than 0"),
        ({"outbound_bytes_max": 10}, "at least max_payload"),
        ({"server_name": "a b"}, "without whitespace"),
        ({"token": "t", "user": "u"}, "token and user and password are given"),
        ({"user": "u"}, "user and password: each needs the other"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Broker(**settings)


async def test_settings_may_come_as_options_and_be_overridden() -> None:
    async with Broker(BrokerOptions(server_name="mill"), max_payload=10) as broker:
        raw = await Raw.connect(broker)
        assert (raw.info["server_name"], raw.info["max_payload"]) == ("mill", 10)
        await raw.close()


async def test_a_broker_that_is_not_started_says_so() -> None:
    broker = Broker()
    with pytest.raises(ConfigurationError, match="not started"):
        _ = broker.hub
    with pytest.raises(ConfigurationError, match="not started"):
        broker.reload(broker.options)


async def test_a_broker_is_started_once_and_goes_on_as_it_was() -> None:
    async with Broker() as broker:
        with pytest.raises(ConfigurationError, match="started before"):
            await broker.start()
        client = await Raw.connect(broker)
        assert await client.ask(PLAIN) == b""
        await client.close()
    with pytest.raises(ConfigurationError, match="started before"):
        await broker.start()
