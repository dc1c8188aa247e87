"""Users whose passwords are bcrypt hashes, with the real library in real threads."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import bcrypt
import nats
import pytest

import headrace
from headrace.broker.core.auth.authentication import User
from headrace.broker.server.passwords import (
    PASSWORD_BYTES_MAX,
    THREADS_MAX,
    Passwords,
    password_checker,
)
from headrace.errors import AuthorizationError, ConfigurationError
from waiting import until

PASSWORD = "s3cret"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


@cache
def slow_hash() -> str:
    return bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(12)).decode()


@pytest.fixture(autouse=True)
def nobody_known() -> None:
    password_checker.cache_clear()


def broker(tmp_path: Path, *users: User, **options: Any) -> headrace.Broker:
    # A comparison may take seconds where others load the cores.
    return headrace.Broker(port=-1, store_dir=tmp_path, users=users, auth_timeout=30.0, **options)


class Held:
    """Lets comparisons of passwords begin, and go on when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self._going_on = threading.Event()
        genuine = bcrypt.checkpw

        def checked(password: bytes, hashed: bytes) -> bool:
            self.begun += 1
            assert self._going_on.wait(60)
            return genuine(password, hashed)

        monkeypatch.setattr(bcrypt, "checkpw", checked)

    def release(self) -> None:
        self._going_on.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    comparisons = Held(monkeypatch)
    yield comparisons
    comparisons.release()


async def test_our_client_and_nats_py_log_in_with_the_password(tmp_path: Path) -> None:
    async with broker(tmp_path, User("ann", HASH)) as server:
        url = server.client_url
        async with headrace.connect(
            url, user="ann", password=PASSWORD, connect_timeout=30
        ) as connection:
            js = connection.jetstream()
            await js.create_stream(name="S", subjects=["s"])
            assert (await js.publish("s", b"x")).seq == 1
        other = await nats.connect(
            url, user="ann", password=PASSWORD, connect_timeout=30, allow_reconnect=False
        )
        assert (await other.jetstream().publish("s", b"y")).seq == 2
        await other.close()
        with pytest.raises(AuthorizationError):
            await _log_in(url, user="ann", password="wrong", reconnect=False)


async def test_a_flood_behind_the_login_is_read_when_it_is_decided(tmp_path: Path) -> None:
    """More than one read of the socket: what is not taken yet stays in the socket."""
    async with broker(tmp_path, User("ann", slow_hash())) as server:
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


async def test_others_are_served_while_a_password_is_compared(tmp_path: Path, held: Held) -> None:
    users = User("ann", HASH), User("bob", "plain")
    async with (
        broker(tmp_path, *users) as server,
        headrace.connect(server.client_url, user="bob", password="plain") as bob,
    ):
        logging_in = asyncio.create_task(_log_in(server.client_url, user="ann", password=PASSWORD))
        await until(lambda: held.begun)
        for _ in range(10):
            await bob.flush()
        assert not logging_in.done()
        held.release()
        await logging_in


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
    async with broker(tmp_path, User("ann", slow_hash())) as server:
        async with server.connect(user="ann", password=PASSWORD, connect_timeout=30) as connection:
            await connection.flush()
        with pytest.raises(AuthorizationError):
            async with server.connect(user="ann", password="wrong", connect_timeout=30):
                pass


async def test_a_broker_stops_while_a_password_is_compared(tmp_path: Path, held: Held) -> None:
    server = broker(tmp_path, User("ann", HASH))
    await server.start()
    writers = []
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"user":"ann","pass":"y"}\r\n')
        writers.append(writer)
    await until(lambda: held.begun == THREADS_MAX)
    await asyncio.wait_for(server.stop(), 30)  # which waits for none of them
    assert held.begun == THREADS_MAX, "the one that waited for a thread is not begun"
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
    async with headrace.connect(url, connect_timeout=30, **options) as connection:
        await connection.flush()
