"""Settings that change while the broker serves, and those that do not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.server import Broker, BrokerOptions, TlsOptions, User
from headrace.broker.server.config.options import reloadable
from headrace.errors import ConfigurationError
from headrace.subjects import SubjectFilter

ANN = User("ann", "p")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, *lines: str) -> list[str]:
        """What is heard until PONG or the end."""
        self.writer.write("".join(f"{line}\r\n" for line in (*lines, "PING")).encode())
        heard: list[str] = []
        async with asyncio.timeout(5):
            async for line in self.reader:
                if line == b"PONG\r\n":
                    break
                heard.append(line.decode().strip())
        return heard

    async def end(self) -> bytes:
        async with asyncio.timeout(5):
            heard = await self.reader.read()
        self.writer.close()
        return heard


_open: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
async def _hang_up() -> AsyncIterator[None]:
    """A connection the broker ended is still open on our side."""
    yield
    while _open:
        writer = _open.pop()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def connect(broker: Broker, user: User | None = ANN) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    _open.append(writer)
    assert (await reader.readline()).startswith(b"INFO")
    client = Client(reader, writer)
    credentials = {} if user is None else {"user": user.name, "pass": user.password}
    document = {"verbose": False, "pedantic": False, "headers": True, **credentials}
    assert await client.ask(f"CONNECT {json.dumps(document)}") == []
    return client


def with_permissions(permissions: Permissions) -> list[User]:
    return [dataclasses.replace(ANN, permissions=permissions)]


async def test_permissions_hold_at_once_for_those_who_are_connected() -> None:
    async with Broker(users=[ANN]) as broker:
        client = await connect(broker)
        assert await client.ask("SUB > 1", "SUB b 2", "UNSUB 1 9") == []
        users = with_permissions(
            Permissions(
                publish_allow=SubjectFilter([b"a", b"b", b"c"]),
                subscribe_deny=SubjectFilter([b"b"]),
            )
        )
        assert broker.reload(dataclasses.replace(broker.options, users=users)) == []
        heard = await client.ask("PUB a 1\r\nx", "PUB b 1\r\ny", "PUB d 1\r\nz", "SUB b 3")
        assert heard == [
            '-ERR \'Permissions Violation for Subscription to "b" (sid "2")\'',
            "MSG a 1 1",
            "x",
            "-ERR 'Permissions Violation for Publish to \"d\"'",
            "-ERR 'Permissions Violation for Subscription to \"b\"'",
        ]
        broker.reload(dataclasses.replace(broker.options, users=[ANN]))
        assert await client.ask("PUB b 1\r\ny") == ["MSG b 1 1", "y"]
        client.writer.close()


async def test_who_is_no_longer_a_user_is_hung_up_on_and_the_others_are_not() -> None:
    bob = User("bob", "q")
    async with Broker(users=[ANN, bob]) as broker:
        ann_client, bob_client = await connect(broker), await connect(broker, bob)
        broker.reload(dataclasses.replace(broker.options, users=[ANN]))
        assert await bob_client.end() == b"-ERR 'Authorization Violation'\r\n"
        assert await ann_client.ask("SUB x 1") == []
        ann_client.writer.close()


async def test_authentication_can_be_added_but_not_be_lost_by_accident() -> None:
    async with Broker() as broker:
        client = await connect(broker, None)
        broker.reload(dataclasses.replace(broker.options, users=[ANN]))
        assert await client.end() == b"-ERR 'Authorization Violation'\r\n"
        without = dataclasses.replace(broker.options, users=())
        with pytest.raises(ConfigurationError, match="the new settings have no authentication"):
            broker.reload(without)
        assert broker.options.users == [ANN]
        broker.reload(dataclasses.replace(without, insecure=True))
        client = await connect(broker, None)
        client.writer.close()


async def test_a_smaller_payload_holds_for_those_who_are_connected_too() -> None:
    async with Broker() as broker:
        old = await connect(broker, None)
        broker.reload(dataclasses.replace(broker.options, max_payload=1))
        for client in (old, await connect(broker, None)):
            client.writer.write(b"PUB a 2\r\nxx\r\n")
            assert await client.end() == b"-ERR 'Maximum Payload Violation'\r\n"


async def test_a_shorter_line_holds_for_those_who_are_connected_too() -> None:
    async with Broker() as broker:
        client = await connect(broker, None)
        assert await client.ask("SUB " + "a" * 600 + " 1") == []
        broker.reload(dataclasses.replace(broker.options, max_control_line=256))
        client.writer.write(b"SUB " + b"b" * 600 + b" 2\r\n")
        assert await client.end() == b"-ERR 'maximum control line exceeded'\r\n"


async def test_the_newest_go_where_there_are_too_many_connections_now() -> None:
    async with Broker() as broker:
        clients = [await connect(broker, None) for _ in range(4)]
        broker.reload(dataclasses.replace(broker.options, connections_max=2))
        for client in clients[2:]:
            assert await client.end() == b"-ERR 'maximum connections exceeded'\r\n"
        for client in clients[:2]:
            assert await client.ask() == []
            client.writer.close()


async def test_what_needs_a_restart_is_named_and_stays() -> None:
    async with Broker(server_name="a") as broker:
        options = dataclasses.replace(broker.options, server_name="b", port=1, max_payload=5)
        assert broker.reload(options) == ["port", "server_name"]
        assert (broker.options.server_name, broker.options.max_payload) == ("a", 5)


async def test_wrong_settings_change_nothing() -> None:
    async with Broker() as broker:
        with pytest.raises(ConfigurationError, match="max_payload: -1"):
            broker.reload(dataclasses.replace(broker.options, max_payload=-1, users=[ANN]))
        assert not broker.hub.authenticator.required


def test_tls_is_there_from_the_start_or_not_at_all(tmp_path: Path) -> None:
    plain = BrokerOptions()
    tls = TlsOptions("a", "b")
    encrypted = BrokerOptions(tls=tls)
    assert reloadable(plain, encrypted) == (plain, ["tls"])
    assert reloadable(encrypted, plain) == (encrypted, ["tls"])
    other = BrokerOptions(tls=TlsOptions("c", "d", verify_clients=True, ca_file="e"))
    assert reloadable(encrypted, other) == (other, [])
    first = BrokerOptions(tls=TlsOptions("a", "b", handshake_first=True))
    kept, left = reloadable(first, other)
    assert kept.tls == TlsOptions("c", "d", handshake_first=True)
    assert left == ["tls.handshake_first", "tls.ca_file", "tls.verify_clients"]
