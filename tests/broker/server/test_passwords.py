"""Users whose passwords are bcrypt hashes, with the real library in real threads."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import bcrypt
import nats
import pytest

import headrace
from headrace.broker.core.auth.authentication import User
from headrace.broker.server.passwords import PASSWORD_BYTES_MAX, Passwords, password_checker
from headrace.errors import AuthorizationError, ConfigurationError

PASSWORD = "s3cret"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
SLOW_HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(12)).decode()


@pytest.fixture(autouse=True)
def nobody_known() -> None:
    password_checker.cache_clear()


def broker(tmp_path: Path, *users: User, **options: Any) -> headrace.Broker:
    return headrace.Broker(port=-1, store_dir=tmp_path, users=users, **options)


async def test_our_client_and_nats_py_log_in_with_the_password(tmp_path: Path) -> None:
    async with broker(tmp_path, User("ann", HASH)) as server:
        url = server.client_url
        async with headrace.connect(url, user="ann", password=PASSWORD) as connection:
            js = connection.jetstream()
            await js.create_stream(name="S", subjects=["s"])
            assert (await js.publish("s", b"x")).seq == 1
        other = await nats.connect(url, user="ann", password=PASSWORD, allow_reconnect=False)
        assert (await other.jetstream().publish("s", b"y")).seq == 2
        await other.close()
        with pytest.raises(AuthorizationError):
            async with headrace.connect(url, user="ann", password="wrong", reconnect=False):
                pass


async def test_a_flood_behind_the_login_is_read_when_it_is_decided(tmp_path: Path) -> None:
    """More than one read of the socket: what is not taken yet stays in the socket."""
    async with broker(tmp_path, User("ann", SLOW_HASH)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        writer.write(
            b'CONNECT {"verbose":false,"user":"ann","pass":"s3cret"}\r\nSUB a 1\r\nUNSUB 1 1\r\n'
        )
        count, line = 20_000, b"PUB a 100\r\n" + b"x" * 100 + b"\r\n"
        writer.write(line * count + b"PING\r\n")
        assert await reader.readline() == b"MSG a 1 100\r\n"
        assert await reader.readuntil(b"PONG\r\n") == b"x" * 100 + b"\r\nPONG\r\n"
        hub = server._hub
        assert hub is not None
        assert [session.in_messages for session in hub.sessions.values()] == [count]
        writer.close()


async def test_others_are_served_while_a_password_is_compared(tmp_path: Path) -> None:
    users = User("ann", SLOW_HASH), User("bob", "plain")
    async with (
        broker(tmp_path, *users) as server,
        headrace.connect(server.client_url, user="bob", password="plain") as bob,
    ):
        logging_in = asyncio.create_task(_log_in(server.client_url, user="ann", password=PASSWORD))
        turns = 0
        while not logging_in.done():
            await bob.flush()
            turns += 1
        await logging_in
        assert turns > 10  # a comparison takes as long as hundreds of them


async def test_a_thousand_clients_of_one_user_cost_one_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    genuine = bcrypt.checkpw

    def checked(password: bytes, hashed: bytes) -> bool:
        compared.append((password, hashed))
        return genuine(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", checked)
    async with broker(tmp_path, User("ann", HASH)) as server:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                connection = headrace.connect(server.client_url, user="ann", password=PASSWORD)
                await stack.enter_async_context(connection)
        assert len(compared) == 1


async def test_a_token_is_compared_with_its_hash(tmp_path: Path) -> None:
    async with headrace.Broker(port=-1, store_dir=tmp_path, token=HASH) as server:
        await _log_in(server.client_url, token=PASSWORD)
        with pytest.raises(AuthorizationError):
            await _log_in(server.client_url, token=HASH, reconnect=False)


async def test_a_client_in_process_waits_too(tmp_path: Path) -> None:
    async with broker(tmp_path, User("ann", SLOW_HASH)) as server:
        async with server.connect(user="ann", password=PASSWORD) as connection:
            await connection.flush()
        with pytest.raises(AuthorizationError):
            async with server.connect(user="ann", password="wrong"):
                pass


async def test_a_broker_stops_while_a_password_is_compared(tmp_path: Path) -> None:
    dear = bcrypt.hashpw(b"x", bcrypt.gensalt(13)).decode()
    server = broker(tmp_path, User("ann", dear), auth_timeout=30.0)
    await server.start()
    writers = []
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"user":"ann","pass":"y"}\r\n')
        writers.append(writer)
    hub = server._hub
    assert hub is not None
    async with asyncio.timeout(10.0):
        while not any(session.holds_input for session in hub.sessions.values()):
            await asyncio.sleep(0)
    started = time.monotonic()
    await server.stop()
    assert time.monotonic() - started < 5.0
    for writer in writers:
        writer.close()


def test_what_bcrypt_does_not_look_at_does_not_count() -> None:
    long = "ü" * PASSWORD_BYTES_MAX
    hashed = bcrypt.hashpw(long.encode()[:PASSWORD_BYTES_MAX], bcrypt.gensalt(4)).decode()
    passwords = Passwords()
    assert passwords.matches(hashed, long)
    assert passwords.matches(hashed, long + "!")
    assert not passwords.matches(hashed, "u" + long)
    assert not passwords.matches(hashed, "\udcff")


@pytest.mark.parametrize("version", ["2a", "2b", "2x", "2y"])
def test_every_version_nats_server_knows_is_compared(version: str) -> None:
    hashed = f"${version}${HASH[4:]}"
    passwords = Passwords()
    assert not passwords.known(hashed, PASSWORD)
    assert passwords.matches(hashed, PASSWORD)
    assert passwords.known(hashed, PASSWORD)
    assert not passwords.known(hashed, "wrong")
    assert not passwords.matches(hashed, "wrong")


def test_without_the_extra_a_hash_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'headrace\[bcrypt\]'"):
        broker(tmp_path, User("ann", HASH)).options.authenticator()


async def _log_in(url: str, **options: Any) -> None:
    # A comparison may take seconds where others load the cores.
    async with headrace.connect(url, connect_timeout=20, **options) as connection:
        await connection.flush()
