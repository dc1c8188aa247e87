"""TLS from the listener to the monitoring: handshakes, clients' certificates, what strangers may cost."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import nats
import pytest

import peers
from certificates import make_authority, sign
from headrace.broker import Broker, TlsOptions
from headrace.broker.core.net.session import Session
from headrace.broker.server import tls
from headrace.broker.server.connections.connection import Connection
from headrace.errors import ConfigurationError

uvloop = peers.package("uvloop")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and certificates of it for a server on 127.0.0.1 and for a client."""
    directory = tmp_path_factory.mktemp("certificates")
    make_authority(directory)
    for name in ("server", "client"):
        sign(directory, name, subject=f"/CN={name}", alternatives="IP:127.0.0.1,DNS:localhost")
    return directory


def tls_options(certificates: Path, **more: Any) -> TlsOptions:
    return TlsOptions(certificates / "server.pem", certificates / "server.key", **more)


def client_context(certificates: Path, *, with_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if with_certificate:
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    return context


async def test_a_client_upgrades_after_the_greeting(certificates: Path, no_leaks: None) -> None:
    async with Broker(tls=tls_options(certificates)) as broker:
        assert broker.client_url.startswith("tls://")
        client = await nats.connect(
            broker.client_url, tls=client_context(certificates), allow_reconnect=False
        )
        subscription = await client.subscribe("a")
        await client.publish("a", bytes(300_000))
        assert len((await subscription.next_msg(timeout=5)).data) == 300_000
        (session,) = broker.hub.sessions.values()
        assert session.peer.tls_version == "TLSv1.3"
        await client.close()


async def test_with_handshake_first_nothing_is_said_in_clear(certificates: Path) -> None:
    async with Broker(tls=tls_options(certificates, handshake_first=True)) as broker:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", broker.port, ssl=client_context(certificates)
        )
        info = json.loads((await reader.readline())[5:])
        assert info["tls_required"] is True
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert await reader.readline() == b"PONG\r\n"
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_goes_on_in_clear_is_hung_up_on(
    certificates: Path, no_leaks: None
) -> None:
    async with Broker(tls=tls_options(certificates)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        info = json.loads((await reader.readline())[5:])
        assert info["tls_required"] is True
        assert "tls_verify" not in info
        assert broker._pump is not None
        (connection,) = broker._pump.connections.values()
        assert isinstance(connection, Connection)
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(5):
                await reader.readuntil(b"PONG\r\n")
        writer.close()
        async with asyncio.timeout(5):
            await connection.gone.wait()
        assert broker.hub.sessions == {}


async def test_client_certificates_are_asked_for(certificates: Path) -> None:
    options = tls_options(certificates, ca_file=certificates / "ca.pem", verify_clients=True)
    async with Broker(tls=options) as broker:
        client = await nats.connect(
            broker.client_url,
            tls=client_context(certificates, with_certificate=True),
            allow_reconnect=False,
        )
        assert client._server_info["tls_verify"] is True
        await client.flush()
        await client.close()

        async def quiet(error: Exception) -> None:
            pass

        with pytest.raises(Exception):  # noqa: B017 - TLS 1.3 tells the client late, in many words
            without = await nats.connect(
                broker.client_url,
                tls=client_context(certificates),
                allow_reconnect=False,
                error_cb=quiet,
            )
            await without.flush(timeout=2)


async def test_a_stranger_to_our_ca_trusts_us_not(certificates: Path) -> None:
    async with Broker(tls=tls_options(certificates)) as broker:

        async def quiet(error: Exception) -> None:
            pass

        with pytest.raises(ssl.SSLCertVerificationError):
            await nats.connect(
                broker.client_url,
                tls=ssl.create_default_context(),
                allow_reconnect=False,
                error_cb=quiet,
            )


@pytest.mark.parametrize("handshake_first", [False, True])
async def test_a_renewed_certificate_is_shown_to_new_clients(
    certificates: Path, *, handshake_first: bool
) -> None:
    def shown(writer: asyncio.StreamWriter) -> str:
        certificate = writer.get_extra_info("ssl_object").getpeercert()
        return str(dict(pair for (pair,) in certificate["subject"])["commonName"])

    async def name_of_certificate() -> str:
        context = client_context(certificates)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", broker.port, ssl=context if handshake_first else None
        )
        if not handshake_first:
            await reader.readline()
            await writer.start_tls(context, server_hostname="127.0.0.1")
        name = shown(writer)
        writer.close()
        return name

    async with Broker(tls=tls_options(certificates, handshake_first=handshake_first)) as broker:
        assert await name_of_certificate() == "server"
        renewed = TlsOptions(
            certificates / "client.pem",
            certificates / "client.key",
            handshake_first=handshake_first,
        )
        assert broker.reload(dataclasses.replace(broker.options, tls=renewed)) == []
        assert await name_of_certificate() == "client"
        mismatched = TlsOptions(certificates / "client.pem", certificates / "server.key")
        with pytest.raises(ConfigurationError, match="tls: cannot use the certificate"):
            broker.reload(dataclasses.replace(broker.options, tls=mismatched))
        assert await name_of_certificate() == "client"


async def test_a_handshake_that_never_comes_ends_the_connection(
    certificates: Path, no_leaks: None
) -> None:
    async with Broker(tls=tls_options(certificates, timeout=0.05)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        await reader.readline()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        assert broker.hub.sessions == {}


async def test_stopping_during_a_handshake_is_no_trouble(
    certificates: Path, no_leaks: None
) -> None:
    async with Broker(tls=tls_options(certificates)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        await reader.readline()
    assert await reader.read() == b""
    writer.close()


def test_wrong_files_are_named(certificates: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="tls: cannot use the certificate '/nowhere'"):
        Broker(tls=TlsOptions("/nowhere", "/nowhere"))
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(ConfigurationError, match="matching PEM files"):
        Broker(tls=TlsOptions(certificates / "server.pem", junk))
    with pytest.raises(ConfigurationError, match="cannot use the CA file"):
        Broker(tls=tls_options(certificates, ca_file=junk))
    with pytest.raises(ConfigurationError, match="verifying clients needs a CA file"):
        Broker(tls=tls_options(certificates, verify_clients=True))


class Caller:
    """A TLS client on a plain socket, whose handshake is not to succeed."""

    def __init__(self, context: ssl.SSLContext, *, first: bool) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self._first = first

    async def complaint(self, port: int) -> str:
        """What the server says is wrong; fails if it only hangs up, or lets us in."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(10):
                if not self._first:
                    await reader.readline()
                while True:
                    try:
                        self._tls.do_handshake()
                        writer.write(self._out.read())
                        self._tls.read()  # of TLS 1.3: the server's word comes after it is done here
                    except ssl.SSLWantReadError:
                        writer.write(self._out.read())
                        data = await reader.read(65_536)
                        assert data, "hung up on without a word"
                        self._in.write(data)
                    except ssl.SSLError as error:
                        return str(error.reason)
        finally:
            writer.close()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("wrong", ["no certificate", "another version"])
async def test_a_failed_handshake_is_told_to_the_client_and_the_log(
    certificates: Path, first: bool, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = tls_options(
        certificates, ca_file=certificates / "ca.pem", verify_clients=True, handshake_first=first
    )
    context = client_context(certificates)
    if wrong == "another version":
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning):
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with Broker(tls=options) as broker:
        said = await Caller(context, first=first).complaint(broker.port)
        assert (
            said
            == {
                "no certificate": "TLSV13_ALERT_CERTIFICATE_REQUIRED",
                "another version": "TLSV1_ALERT_PROTOCOL_VERSION",
            }[wrong]
        )
        good = client_context(certificates, with_certificate=True)
        if not first:
            client = await nats.connect(broker.client_url, tls=good, allow_reconnect=False)
            await client.close()
    (line,) = [r.getMessage() for r in caplog.records if "handshake" in r.getMessage()]
    assert "TLS handshake error: " in line
    assert ("127.0.0.1:" in line) is not first


def test_the_log_is_not_filled_by_who_fails_on_purpose(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    complaints = tls._Complaints(lambda: now)
    for _ in range(1000):
        complaints.say("no")
    assert len(caplog.records) == tls.LINES_MAX
    now += tls.LINES_WITHIN_S
    complaints.say("no")
    assert caplog.records[-1].getMessage() == "no (and 990 more before)"


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_floods_over_tls_is_served_in_turns_and_hears_all_answers(
    certificates: Path,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script that pipes its lines in: TLS may tell the last of them and the end in one breath."""
    count = 30_000

    def talk(port: int) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            closing(plain.makefile("rb", buffering=0)) as greeting,
        ):
            assert greeting.readline().startswith(b"INFO ")
            context = client_context(certificates)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as wire:
                wire.sendall(b'CONNECT {"verbose":false}\r\n' + b"PING\r\n" * count)
                heard = b""
                while heard.count(b"PONG\r\n") < count and (data := wire.recv(1 << 16)):
                    heard += data
                return heard

    async def main() -> None:
        async with Broker(tls=tls_options(certificates)) as broker:
            cut = 0
            real = Session.go_on

            def go_on(self: Session) -> None:
                nonlocal cut
                cut += 1
                real(self)

            monkeypatch.setattr(Session, "go_on", go_on)
            heard = await asyncio.to_thread(talk, broker.port)
            assert heard.count(b"PONG\r\n") == count
            assert cut > 1

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
