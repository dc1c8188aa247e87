"""A client's certificate says which user it is, in the same words as for nats-server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import peers
from certificates import make_authority, sign


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server, and clients with and without alternative names."""
    directory = tmp_path_factory.mktemp("mapped")
    make_authority(directory)
    names = {
        "server": "IP:127.0.0.1",
        "mail": "email:ann@mill.example,DNS:ann.mill.example",
        "plain": "IP:127.0.0.1",
    }
    for name, alternatives in names.items():
        sign(directory, name, subject="/C=FR/O=Mill, Old/CN=ann", alternatives=alternatives)
    return directory


async def _logs_in(server: peers.ServerProcess, files: Path, certificate: str) -> bool:
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    context.load_cert_chain(files / f"{certificate}.pem", files / f"{certificate}.key")
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        try:
            assert (await reader.readline()).startswith(b"INFO ")
            await writer.start_tls(context, server_hostname="127.0.0.1")
            writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
            heard = [line async for line in _until_answered(reader)]
        finally:
            writer.close()
            with contextlib.suppress(OSError):  # the server may have hung up first
                await writer.wait_closed()
    return heard[-1:] == [b"PONG\r\n"]


async def _until_answered(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    async for line in reader:
        if not line.startswith((b"INFO", b"PING")):
            yield line
            return


@pytest.mark.peer
@pytest.mark.parametrize(
    ("user", "certificate", "known"),
    [
        ("ann@mill.example", "mail", True),
        ("CN=ann,O=Mill\\\\, Old,C=FR", "plain", True),
        ("bob@mill.example", "mail", False),
    ],
)
async def test_a_certificate_names_its_user(
    nats_server: Callable[..., peers.ServerProcess],
    tmp_path: Path,
    files: Path,
    user: str,
    certificate: str,
    known: bool,
) -> None:
    config = f"""
    tls {{ cert_file: "{files}/server.pem", key_file: "{files}/server.key",
           ca_file: "{files}/ca.pem", verify_and_map: true }}
    authorization {{ users: [ {{ user: "{user}" }} ] }}
    """
    file = tmp_path / "same.conf"
    file.write_text(config)
    ours = peers.start_headrace(tmp_path / "ours", flags=["-c", str(file)])
    try:
        assert await _logs_in(ours, files, certificate) is known
    finally:
        ours.stop()
    assert await _logs_in(nats_server(config=config), files, certificate) is known
