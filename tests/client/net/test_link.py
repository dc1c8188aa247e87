"""The handshake with odd and hostile servers, and TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import peers
from certificates import self_signed
from headrace.client import connect
from headrace.client.events import Disconnected, ErrorEvent, Event, LameDuck
from headrace.errors import AuthorizationError, ConnectFailedError, HeadraceError
from listening import Listening

pytestmark = pytest.mark.usefixtures("no_leaks")

INFO = b'INFO {"server_id":"X","headers":true,"max_payload":1000}\r\n'
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@asynccontextmanager
async def speaking(*words: bytes, hang: bool = False) -> AsyncIterator[str]:
    """A server that says these words, one after each line it reads, and then closes (or hangs)."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for index, word in enumerate(words):
                if index:
                    await reader.readuntil(b"PING\r\n" if index == 1 else b"\r\n")
                writer.write(word)
                await writer.drain()
            if hang:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        writer.close()
        ended.set()

    async with Listening(serve) as server:
        yield server.url
        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([b""], "the server closed the connection"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "unknown protocol operation"),
        ([b"INFO []\r\n"], "INFO is not understood"),
        ([INFO, b""], "the server closed the connection"),
        ([INFO, b"-ERR 'maximum connections exceeded'\r\n"], "maximum connections exceeded"),
    ],
)
async def test_a_failed_handshake_says_why(words: list[bytes], reason: str) -> None:
    async with speaking(*words) as url:
        with pytest.raises(ConnectFailedError, match=reason):
            await connect(url)


async def test_a_refusal_of_the_credentials_is_its_own_error() -> None:
    async with speaking(INFO, b"-ERR 'Authorization Violation'\r\n") as url:
        with pytest.raises(AuthorizationError, match="Authorization Violation"):
            await connect(url, user="u", password="p")


async def test_a_silent_server_is_given_up_in_time() -> None:
    async with speaking(b"", hang=True) as url:
        with pytest.raises(ConnectFailedError, match=r"no handshake within 0\.1 s"):
            await connect(url, connect_timeout=0.1)


async def test_tls_that_the_server_does_not_offer_is_not_skipped() -> None:
    async with speaking(INFO, hang=True) as url:
        with pytest.raises(ConnectFailedError, match="does not offer it"):
            await connect(url, tls=True)


async def test_garbage_from_the_server_ends_the_connection_with_the_reason() -> None:
    events: list[Event] = []
    async with (
        speaking(INFO, b"PONG\r\n", b"NONSENSE\r\n", hang=True) as url,
        connect(url, on_event=events.append) as connection,
    ):
        with pytest.raises(HeadraceError):
            await connection.flush(2)
    assert "unknown protocol operation" in str([e for e in events if isinstance(e, Disconnected)])


async def test_frames_right_after_the_handshake_are_not_lost() -> None:
    events: list[Event] = []
    second = INFO.replace(b"}", b',"ldm":true,"connect_urls":["127.0.0.1:1"]}')
    async with (
        speaking(INFO, b"PONG\r\n" + second + b"-ERR 'Oops'\r\n", hang=True) as url,
        connect(url, on_event=events.append) as connection,
    ):
        assert "nats://127.0.0.1:1" in connection.servers
    assert any(isinstance(event, LameDuck) for event in events)
    assert [str(e.error) for e in events if isinstance(e, ErrorEvent)] == ["Oops"]


# TLS


async def test_a_connection_that_ends_within_the_tls_handshake_is_refused_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start_tls(transport: asyncio.Transport, *_: object, **__: object) -> None:
        """What asyncio does when the other side hangs up while the context is being set up."""
        transport.abort()

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", start_tls, raising=False)
    offer = INFO.replace(b"}", b',"tls_available":true}')
    async with speaking(offer, hang=True) as url:
        with pytest.raises(ConnectFailedError, match="ended in the TLS handshake"):
            await connect(url, tls=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for ``localhost`` that is its own authority."""
    directory = tmp_path_factory.mktemp("tls")
    return self_signed(directory, name="localhost", alternatives="DNS:localhost")


@pytest.mark.peer
@pytest.mark.parametrize("first", [False, True])
async def test_tls_is_spoken_after_info_or_before(
    nats_server: Callable[..., peers.ServerProcess], certificate: tuple[Path, Path], first: bool
) -> None:
    cert, key = certificate
    # With handshake_first the server would not greet the fixture's plain probe; `auto` does, late.
    extra = ', handshake_first: "50ms"' if first else ""
    server = nats_server(config=f'tls {{ cert_file: "{cert}", key_file: "{key}"{extra} }}')
    context = ssl.create_default_context(cafile=str(cert))
    url = f"nats://127.0.0.1:{server.port}"
    async with connect(
        url, tls=context, tls_first=first, tls_hostname="localhost", connect_timeout=5
    ) as connection:
        await connection.flush()
    with pytest.raises(ConnectFailedError, match="certificate refused"):
        await connect(url, tls=context, tls_first=first)  # the name does not fit
    with pytest.raises(ConnectFailedError, match="certificate refused"):
        await connect(url, tls_first=first, tls_hostname="localhost")  # nobody vouches for it
