"""A client that begins its handshake before it has read INFO, on both event loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certificates import self_signed
from headrace.broker import Broker, TlsOptions
from headrace.sockets import start_tls

LOOPS = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

HANDSHAKES = 10  # whether the first bytes come too early is up to the machine


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and its key, in one file."""
    directory = tmp_path_factory.mktemp("certificate")
    certificate, key = self_signed(directory, name="localhost")
    file = directory / "server.pem"
    file.write_bytes(key.read_bytes() + certificate.read_bytes())
    return file


class Eager:
    """A TLS client on a plain socket, which decides when its bytes go out."""

    def __init__(self, certificate: Path, port: int) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=certificate)
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self._shaken = self._shake()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._socket.sendall(self._out.read())

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def greeting(self) -> bytes:
        """What the server says in clear."""
        line = b""
        while not line.endswith(b"\r\n"):
            line += self._received(1)
        return line

    def ask(self, request: bytes) -> bytes:
        """Finish the handshake, with a request right behind it; the last line of the answer."""
        while not self._shaken:
            self._in.write(self._received())
            self._shaken = self._shake()
        self._tls.write(request)
        self._socket.sendall(self._out.read())
        heard = b""
        while not heard.endswith(b"PONG\r\n"):
            try:
                data = self._tls.read(1 << 16)
                assert data, f"the server ended TLS after {heard!r}"
                heard += data
            except ssl.SSLWantReadError:
                self._in.write(self._received())
        return heard.splitlines()[-1]

    def _received(self, most: int = 1 << 16) -> bytes:
        data = self._socket.recv(most)
        assert data, "the server hung up"
        return data

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_handshake_may_begin_before_the_greeting_was_read(certificate: Path, loop: str) -> None:
    async def serve(client: Callable[[int], None]) -> None:
        async with Broker(tls=TlsOptions(certificate, certificate)) as broker:
            for _ in range(HANDSHAKES):
                await asyncio.to_thread(client, broker.port)

    def shake_hands(port: int) -> None:
        client = Eager(certificate, port)
        try:
            assert client.greeting().startswith(b"INFO ")
            assert client.ask(b"CONNECT {}\r\nPING\r\n") == b"PONG"
        finally:
            client.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(serve(shake_hands))


@pytest.mark.parametrize("loop", list(LOOPS))
def test_who_leaves_at_once_leaves_nothing(certificate: Path, loop: str) -> None:
    async def serve() -> None:
        problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
        async with Broker(tls=TlsOptions(certificate, certificate)) as broker:
            for _ in range(HANDSHAKES):
                socket.create_connection(("127.0.0.1", broker.port), timeout=5).close()
                await asyncio.sleep(0)
        assert problems == []

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(serve())


async def test_who_is_gone_before_the_handshake_begins_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    faults: list[object] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    over = asyncio.Event()

    class Gone(asyncio.Transport):
        def get_protocol(self) -> asyncio.BaseProtocol:
            loop.call_soon(over.set)
            return None  # type: ignore[return-value]  # as uvloop says it of a closed transport

    async def wait(*_: object, **__: Any) -> None:
        await over.wait()

    monkeypatch.setattr(loop, "start_tls", wait)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    early = [b"\x16\x03\x01"]
    upgraded = await start_tls(Gone(), asyncio.Protocol(), context, timeout_s=1, early=early)
    assert upgraded is None
    assert not early
    assert not faults
