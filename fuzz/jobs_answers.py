"""Hostile endpoints: whatever a server on the other side of a push may answer, over TCP and TLS."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from jobs_requests import CHUNKS, DATES, NUMBERS, text

__all__ = ["HostileEndpoint", "certificates"]

# Few that throttle: an endpoint that asks for an hour is left alone for an hour.
STATUS: Final = (
    *(200, 204, 301, 400, 404, 500, 501) * 8,
    410,
    429,
    502,
    503,
    504,
    600,
    999,
    0,
    100,
    101,
)
RETRY_AFTER: Final = (
    *DATES,
    *NUMBERS,
    *(
        "99999999999 Jan 01 12:30",
        "Fri, 31 Dec 9999 23:59:59 -1200",
        "1 Jan 0 0:0",
        "Mon, 1 Jan 1",
        ",,,,",
    ),
    *(
        "01 Jan 1970 00:02:00 +9999999999999",
        "Thu, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Jan Jan Jan",
    ),
    *("1 Jan 2026 99:99:99:99", "(", "Sat, 31 Jan 2026 23:59:60 GMT", "1 1 1 1 1 1 1", ":", "\t0"),
)
LINES: Final = (
    *(
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 200",
        b"HTTP/9.9 200 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 -1 OK",
    ),
    *(
        b"ICY 200 OK",
        b"HTTP/1.1 \xff OK",
        b"200",
        b"",
        b"HTTP/1.1  200  OK",
        b"\0\0\0\0",
        b"SSH-2.0-x",
    ),
    *(b"HTTP/1.1 200 " + b"y" * 20_000, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"),
)


class HostileEndpoint:
    """A server that answers each request by chance; ``tls`` are contexts for further ports."""

    def __init__(self, seed: str, tls: list[ssl.SSLContext]) -> None:
        self._rng = random.Random(seed)
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self.urls: list[str] = []
        self.answers = 0

    async def __aenter__(self) -> HostileEndpoint:
        for context in (None, *self._tls):
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            scheme = "http" if context is None else "https"
            # A certificate that names the host is accepted, the others are met with what is wrong.
            self.urls.append(f"{scheme}://{'localhost' if context else '127.0.0.1'}:{port}/hook")
        return self

    async def __aexit__(self, *exception: object) -> None:
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length")
                    ),
                    0,
                )
                await reader.readexactly(length)
                self.answers += 1
                if not await self._answer(writer):
                    return
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        """Answer once. Returns whether the connection goes on."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.05:
            writer.transport.abort()
            return False
        if kind < 0.1:
            return False  # closed without a word
        if kind < 0.15:
            writer.write(rng.randbytes(rng.choice((1, 20, 3000))))
            return False
        made = self._made(rng)
        at = len(made) if rng.random() < 0.8 else rng.randrange(len(made) + 1)
        cut = rng.randrange(at + 1)
        writer.write(made[:cut])
        await writer.drain()
        writer.write(made[cut:at])
        await writer.drain()
        return at == len(made) and rng.random() < 0.7

    def _made(self, rng: random.Random) -> bytes:
        line = b"HTTP/1.1 %d Word" % rng.choice(STATUS)
        if rng.random() < 0.15:
            line = rng.choice(LINES)
        body = text(rng) * rng.choice((1, 1, 1, 100))
        headers = [(b"Retry-After", rng.choice(RETRY_AFTER).encode())] if rng.random() < 0.6 else []
        if rng.random() < 0.3:
            value = b"timeout=" + rng.choice(NUMBERS).encode()
            headers.append((b"Keep-Alive", value))
        if rng.random() < 0.2:
            headers.append((text(rng)[:30], text(rng)))
        if rng.random() < 0.05:
            headers.append((b"X-Long", b"z" * 20_000))
        framing = rng.random()
        if framing < 0.6:
            headers.append((b"Content-Length", b"%d" % len(body)))
        elif framing < 0.75:
            headers.append((b"Content-Length", rng.choice(NUMBERS).encode()))
        elif framing < 0.95:
            headers.append((b"Transfer-Encoding", b"chunked"))
            body = rng.choice(CHUNKS)
        head = b"\r\n".join([line, *(name + b": " + value for name, value in headers)])
        return head + b"\r\n\r\n" + body


def certificates(directory: Path) -> tuple[Path, list[ssl.SSLContext]]:
    """Certificates with odd contents, signed by a root of our own. Returns the root's file and contexts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def signed(
        subject: str,
        names: list[str],
        days: tuple[int, int],
        change: Callable[[x509.CertificateBuilder], x509.CertificateBuilder],
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("fuzz root"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
            )
        return change(builder).sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def as_root(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
        return builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )

    root = directory / "root.pem"
    root.write_bytes(signed("fuzz root", [], (-1, 1000), as_root))
    leaves = [
        signed("localhost", ["localhost"], (-1, 100), lambda builder: builder),
        signed("a\0localhost", ["a\0localhost"], (-1, 100), lambda builder: builder),
        signed(
            "x" * 64,
            [f"{number}.example" for number in range(2000)],
            (-1, 100),
            lambda builder: builder,
        ),
        signed("old", ["localhost"], (-100, -50), lambda builder: builder),
        signed("not yet", ["localhost"], (50, 100), lambda builder: builder),
        signed("\u202e<b>", ["*", "*.*", "xn--a"], (-1, 100_000), lambda builder: builder),
    ]
    contexts = []
    for number, leaf in enumerate(leaves):
        path = directory / f"leaf{number}.pem"
        path.write_bytes(leaf + pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        contexts.append(context)
    return root, contexts
