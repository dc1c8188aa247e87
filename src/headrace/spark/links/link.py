"""One blocking connection to a server, for processes without an event loop.

Spark's Python workers are plain, single-threaded programs that read a range and pass it on; an event loop
would only add a layer between the socket and the Arrow batch. Only one thread at a time uses a link.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import socket
import ssl
import time
from operator import itemgetter
from random import Random
from typing import Final, NamedTuple

from ...client.net.handshake import (
    Handshake,
    ServerAddress,
    ServerInfo,
    lacks_permission,
    parse_info,
    parse_servers,
)
from ...client.net.servers import Round, ServerPool
from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
)
from ...limits import READ_CHUNK_BYTES
from ...wire import BAD, ERR, INFO, MSG, PING, Frame, Parser, PayloadReader
from ...wire.headers import says_nobody
from ..frames import Run, RunReader
from ..options import Connection

_LOG: Final = logging.getLogger("headrace.spark")
_REPLIES_SID: Final = b"1"
_CRLF: Final = b"\r\n"
_ONLY_MESSAGES: Final = frozenset({MSG})
_OP: Final = itemgetter(0)
_SID: Final = itemgetter(2)  # of a MSG frame


class Reply(NamedTuple):
    """The answer to a request: its raw header block (or ``b""``) and its payload."""

    headers: bytes
    payload: bytes


class Link:
    """A connection that has completed the handshake.

    Raises, from every method that communicates with the server:
        ConnectionClosedError: the connection ended; open another one.
        AuthorizationError: the server does not allow what was asked; another connection changes nothing.
        RequestTimeoutError: nothing came in time.
    """

    def __init__(
        self, connection: Connection, sock: socket.socket, parser: Parser, info: ServerInfo
    ) -> None:
        self.info = info
        self._connection = connection
        self._sock = sock
        self._parser = parser
        self._held: list[Frame] = []
        self._inbox = f"{connection.inbox_prefix}.{secrets.token_hex(8)}".encode()
        self._numbers = itertools.count(1)
        self._live: set[bytes] = set()
        self._pool: ServerPool | None = None
        self._server: ServerAddress | None = None
        self.closed = False

    @classmethod
    def open(cls, connection: Connection) -> Link:
        """Connect to the server of this process's last connection, or the next one that answers: of those
        given, or that they told of.

        Raises:
            ConnectFailedError: none could be reached; the text gives the reason for each server.
            AuthorizationError: none of those that could be reached accepted the credentials.
            ConfigurationError: a server URL or a certificate file is wrong.
        """
        pool = _servers_of(connection)
        if any(address.websocket for address in pool.addresses):
            raise ConfigurationError(
                "jetstream source: 'servers' has a WebSocket URL; accepted: nats:// and tls://"
            )
        context = tls_context(connection, pool.addresses)
        attempts = Round(pool, "cannot reach a NATS server")
        for address in attempts:
            try:
                link = _shake_hands(connection, address, context)
            except AuthorizationError as error:
                attempts.failed(address, error)
            except (
                OSError,
                ConnectionClosedError,
                ProtocolError,
                RequestTimeoutError,
                ServerError,
                UnicodeError,  # of a host that cannot be one
            ) as error:
                attempts.failed(address, ConnectFailedError(f"{address}: {_reason(error)}"))
            else:
                pool.succeeded(address)
                link._know(pool, address)
                return link
        raise attempts.error()

    def _know(self, pool: ServerPool, server: ServerAddress) -> None:
        """``server`` is ours: connections that are made from here on try it first, and those it tells of as
        well."""
        self._pool, self._server = pool, server
        pool.discover(self.info.connect_urls, server)
        _SERVERS[self._connection] = pool

    def api(self, *tokens: str) -> str:
        """The subject of a JetStream API call, as this connection reaches it."""
        return ".".join((self._connection.api_prefix, *tokens))

    def close(self) -> None:
        """Close the connection; further calls raise ConnectionClosedError."""
        self.closed = True
        self._sock.close()

    def is_alive(self) -> bool:
        """Whether the connection is still open, as far as can be told without waiting."""
        if self.closed:
            return False
        try:
            self._sock.settimeout(0)
            chunk = self._sock.recv(READ_CHUNK_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            chunk = b""
        try:
            self._take(chunk)
        except ConnectionClosedError:
            return False
        return True

    def send(self, data: bytes) -> None:
        """Write protocol bytes."""
        if self.closed:
            raise ConnectionClosedError("the connection is closed")
        try:
            self._sock.settimeout(self._connection.request_timeout_s)
            self._sock.sendall(data)
        except OSError as error:
            self.close()
            raise ConnectionClosedError(f"the connection broke while sending: {error}") from error

    def publish(self, subject: str, payload: bytes, reply: bytes = b"") -> None:
        """Send one message."""
        head = b"PUB %b %b %d" if reply else b"PUB %b%b %d"
        self.send(head % (subject.encode(), reply, len(payload)) + _CRLF + payload + _CRLF)

    def subscribe(self) -> tuple[bytes, bytes]:
        """Create an inbox. Returns its subject and the sid that its messages carry."""
        return self._subscribe(b"")

    def subscribe_below(self) -> tuple[bytes, bytes]:
        """Create many inboxes in one: all subjects of one token after the prefix that is returned."""
        subject, sid = self._subscribe(b".*")
        return subject[:-1], sid

    def _subscribe(self, suffix: bytes) -> tuple[bytes, bytes]:
        number = next(self._numbers)
        sid = b"%d" % (number + 1)
        subject = b"%b.p%d%b" % (self._inbox, number, suffix)
        self.send(b"SUB %b %b\r\n" % (subject, sid))
        self._live.add(sid)
        return subject, sid

    def unsubscribe(self, sid: bytes) -> None:
        """Remove an inbox; messages still in flight to it are dropped."""
        self._live.discard(sid)
        self._held = [frame for frame in self._held if frame[2] != sid]
        self.send(b"UNSUB %b\r\n" % sid)

    def request(self, subject: str, payload: bytes = b"") -> Reply:
        """Send a request and wait for the answer.

        Raises:
            NoRespondersError: ``subject`` has no responders.
        """
        return self.request_many([(subject, payload)])[0]

    def request_many(
        self, requests: list[tuple[str, bytes]], blocks: list[bytes] | None = None
    ) -> list[Reply]:
        """Send many requests in one write, each with its header block if ``blocks`` are given; the answers
        are in the order of the requests.
        """
        if _REPLIES_SID not in self._live:
            self.send(b"SUB %b.r.* %b\r\n" % (self._inbox, _REPLIES_SID))
            self._live.add(_REPLIES_SID)
        front = b"%b.r.%d-" % (self._inbox, next(self._numbers))
        if blocks is None:
            lines = [
                b"PUB %b %b%d %d\r\n%b\r\n" % (subject.encode(), front, at, len(payload), payload)
                for at, (subject, payload) in enumerate(requests)
            ]
        else:
            lines = [
                b"HPUB %b %b%d %d %d\r\n%b%b\r\n"
                % (
                    subject.encode(),
                    front,
                    at,
                    len(block),
                    len(block) + len(payload),
                    block,
                    payload,
                )
                for at, ((subject, payload), block) in enumerate(zip(requests, blocks, strict=True))
            ]
        self.send(b"".join(lines))
        return self._answers(front, [subject for subject, _ in requests])

    def _answers(self, front: bytes, subjects: list[str]) -> list[Reply]:
        """The answers to requests on these subjects: each came to ``front`` and which of them it is for."""
        timeout_s = self._connection.request_timeout_s
        deadline = time.monotonic() + timeout_s
        answers: dict[bytes, Reply] = {}
        cut, count = len(front), len(subjects)
        while len(answers) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                missing = next(at for at in range(count) if b"%d" % at not in answers)
                raise RequestTimeoutError(
                    f"no answer to {subjects[missing]} within {timeout_s:g} s"
                )
            for frame in self._receive(left):
                _, to, sid, _, headers, body = frame
                if sid == _REPLIES_SID:
                    if to.startswith(front):
                        if says_nobody(headers, body):
                            raise NoRespondersError(f"nobody answers on {subjects[int(to[cut:])]}")
                        answers.setdefault(to[cut:], Reply(headers, body))
                elif sid in self._live:
                    self._held.append(frame)
        return [answers[b"%d" % at] for at in range(count)]

    def poll(self, timeout_s: float) -> list[Frame]:
        """The messages that arrived for our inboxes; waits for the first, empty after ``timeout_s``."""
        if self._held:
            held, self._held = self._held, []
            return held
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            frames = self._receive(left)
            if frames:
                return self._of_inboxes(frames)

    def poll_runs(self, runs: RunReader, timeout_s: float) -> Run | list[Frame]:
        """``poll``, for a subscription of which ``runs`` reads many messages at once."""
        deadline = time.monotonic() + timeout_s
        while not self._held:
            left = deadline - time.monotonic()
            data = self._read(left) if left > 0 else None
            if data is None:
                return []
            run = None
            # The beginning of a large message stays where it is: it would be copied with every read.
            if data and self._parser.held_bytes <= PayloadReader.MESSAGE_BYTES_MAX:
                run, data = runs.read(self._parser.give_up() + data)
            if data or run is None:
                self._held = self._of_inboxes(self._take(data))
            if run is not None:
                return run
        return self.poll(timeout_s)

    def _of_inboxes(self, frames: list[Frame]) -> list[Frame]:
        """Without messages that were under way to an inbox that is gone."""
        live = self._live
        if live.issuperset(map(_SID, frames)):
            return frames
        return [frame for frame in frames if frame[2] in live]

    def _receive(self, timeout_s: float) -> list[Frame]:
        """One read of the socket: its MSG frames, possibly none; all other frames are handled."""
        data = self._read(timeout_s)
        return [] if data is None else self._take(data)

    def _read(self, timeout_s: float) -> bytes | None:
        """One read of the socket; None if nothing comes in time, ``b""`` if the server ended it."""
        if self.closed:
            raise ConnectionClosedError("the connection is closed")
        try:
            self._sock.settimeout(max(timeout_s, 0.001))
            return self._sock.recv(READ_CHUNK_BYTES)
        except TimeoutError:
            return None
        except OSError as error:
            self.close()
            raise ConnectionClosedError(f"the connection broke: {error}") from error

    def _take(self, chunk: bytes) -> list[Frame]:
        if not chunk:
            self.close()
            raise ConnectionClosedError("the server closed the connection")
        frames = self._parser.feed(chunk)
        if _ONLY_MESSAGES.issuperset(map(_OP, frames)):
            return frames
        return [frame for frame in frames if frame[0] == MSG or self._housekeeping(frame)]

    def _housekeeping(self, frame: Frame) -> bool:
        """Handle a frame that is not a message; always False, so that it is filtered out."""
        op = frame[0]
        if op == PING:
            self.send(b"PONG\r\n")
        elif op == ERR:
            # Permission errors, too: otherwise they would only show as a request without an answer. Whether
            # credentials that have expired are others by now, the next connection finds out.
            self.close()
            may_not = lacks_permission(frame[1])
            kind = AuthorizationError if may_not else ConnectionClosedError
            raise kind(f"the server said: {frame[1]}")
        elif op == INFO:
            self._read_info(frame[1])
        elif op == BAD:
            self.close()
            raise ConnectionClosedError(f"the server does not speak NATS: {frame[1]}")
        return False

    def _read_info(self, document: bytes) -> None:
        """What the server says of itself has changed."""
        try:
            self.info = parse_info(document)
        except ProtocolError as error:
            _LOG.warning("%s: %s", self._server, error)
            return
        if self._pool is not None and self._server is not None:
            self._know(self._pool, self._server)


_SERVERS: Final[dict[Connection, ServerPool]] = {}
"""What this process knows of servers: which answered last, and which others there are."""


def _servers_of(connection: Connection) -> ServerPool:
    """The servers to try. Each attempt has a pool of its own, as several threads may make one."""
    known = _SERVERS.get(connection)
    if known is not None:
        return known.copy()
    addresses = parse_servers(list(connection.servers))
    return ServerPool(addresses, randomize=False, max_attempts=-1, random=Random())


def tls_context(connection: Connection, addresses: list[ServerAddress]) -> ssl.SSLContext | None:
    """The TLS context, if any option requires TLS. Raises ConfigurationError: a file cannot be used."""
    wanted = connection.tls or connection.tls_first or connection.tls_ca or connection.tls_cert
    if not wanted and not any(address.tls for address in addresses):
        return None
    try:
        context = ssl.create_default_context(cafile=connection.tls_ca or None)
        if connection.tls_cert:
            context.load_cert_chain(connection.tls_cert, connection.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"jetstream source: the files of tlsCa, tlsCert and tlsKey cannot be used: {error}"
        ) from error
    return context


def _shake_hands(
    connection: Connection, address: ServerAddress, context: ssl.SSLContext | None
) -> Link:
    """Connect to one server."""
    handshake = Handshake(
        address,
        connection.credentials,
        is_encrypted=connection.tls_first,
        wants_tls=None if connection.tls_first else connection.tls or address.tls,
        name="headrace-spark",
    )
    sock = socket.create_connection((address.host, address.port), connection.connect_timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline = time.monotonic() + connection.connect_timeout_s
        if connection.tls_first:
            sock = _encrypted(sock, connection, address, context)
        parser = Parser.for_client()
        while handshake.info is None:
            _take_step(sock, parser, handshake, deadline)
        if handshake.needs_tls:
            sock = _encrypted(sock, connection, address, context)
        sock.sendall(handshake.hello())
        while not handshake.is_accepted:
            _take_step(sock, parser, handshake, deadline)
    except BaseException:
        sock.close()
        raise
    link = Link(connection, sock, parser, handshake.info)
    for frame in handshake.early:
        link._housekeeping(frame)
    return link


def _encrypted(
    sock: socket.socket,
    connection: Connection,
    address: ServerAddress,
    context: ssl.SSLContext | None,
) -> ssl.SSLSocket:
    context = context or ssl.create_default_context()
    name = connection.tls_hostname or address.tls_name or address.host
    return context.wrap_socket(sock, server_hostname=name)


def _take_step(sock: socket.socket, parser: Parser, handshake: Handshake, deadline: float) -> None:
    """Read once."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise RequestTimeoutError(
            "the server accepted the connection but did not finish the handshake"
        )
    sock.settimeout(left)
    chunk = sock.recv(READ_CHUNK_BYTES)
    if not chunk:
        raise ConnectionClosedError("the server closed the connection during the handshake")
    if answers := handshake.receive(parser.feed(chunk), parser.held_bytes):
        sock.sendall(answers)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "this cannot be a host name"
    return (
        error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    ) or repr(error)
