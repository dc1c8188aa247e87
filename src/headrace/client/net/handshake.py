"""The handshake: server URLs, the server's INFO, our CONNECT, and their order. Pure: no sockets, no clock.

The asyncio connection has its handshake from here, and so has Spark's blocking one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from ..._version import __version__
from ...api.base import DocumentError, read_typed
from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ProtocolError,
    ServerError,
)
from ...wire.frames import BAD, ERR, INFO, PING, PONG, Frame

DEFAULT_PORT: Final = 4222

_TLS_SCHEMES: Final = frozenset({"tls", "wss"})
_WEBSOCKET_PORTS: Final = {"ws": 80, "wss": 443}
_SCHEMES: Final = frozenset({"nats", "tcp", "tls", "ws", "wss"})
# Not "authentication timeout": a server too busy to read our credentials sends that.
_AUTHORIZATION: Final = (
    "authorization violation",
    "user authentication expired",
    "user authentication revoked",
    "account authentication expired",
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are. Empty strings are not sent; nothing of it appears in ``repr``.

    Attributes:
        user, password: sent together.
        token: one shared secret instead of a user.
        jwt: a user's JWT, with ``signature`` made by the caller over the server's nonce.
        nkey: a public key, likewise with ``signature``.
    """

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    nkey: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return any((self.user, self.password, self.token, self.jwt, self.nkey))


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and the credentials its URL carried. ``str()`` never shows those.

    ``path`` is of a WebSocket's URL, for proxies that look at it. ``tls_name`` is the name the certificate
    carries, where that is not ``host``.
    """

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    credentials: Credentials = field(default_factory=Credentials, repr=False)
    websocket: bool = False
    path: str = ""
    tls_name: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        plain, safe = ("ws", "wss") if self.websocket else ("nats", "tls")
        return f"{safe if self.tls else plain}://{host}:{self.port}"

    @property
    def key(self) -> tuple[str, int]:
        """What makes two addresses the same server."""
        return (self.host, self.port)


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The server's INFO. Fields a server leaves out have the protocol's default."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    """The nats-server it is, or is compatible with: clients switch features by it."""
    headrace: str = ""
    """Headrace's own version; empty at another server."""
    proto: int = 0
    host: str = ""
    port: int = 0
    headers: bool = False
    max_payload: int = 1024 * 1024
    jetstream: bool = False
    api_lvl: int = 0
    client_id: int = 0
    client_ip: str = ""
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    tls_verify: bool = False
    connect_urls: list[str] = msgspec.field(default_factory=list)
    nonce: str = ""
    ldm: bool = False
    cluster: str = ""
    domain: str = ""

    @property
    def said_version(self) -> str:
        """The version for people: Headrace's, with what it is compatible with; or nats-server's."""
        if not self.headrace:
            return self.version
        return f"Headrace {self.headrace}, compatible with nats-server {self.version}"

    @property
    def said_name(self) -> str:
        """The name somebody gave it; empty where it has only its key."""
        return "" if self.server_name == self.server_id else self.server_name


class _Connect(msgspec.Struct, omit_defaults=True, kw_only=True):
    """CONNECT. The first block is always written, for servers that expect every field."""

    verbose: bool | None = None
    pedantic: bool | None = None
    tls_required: bool | None = None
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    echo: bool | None = None
    headers: bool | None = None
    no_responders: bool | None = None
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    jwt: str = ""
    nkey: str = ""
    sig: str = ""


_encode_connect = msgspec.json.Encoder().encode


def parse_info(document: bytes) -> ServerInfo:
    """Read the JSON of an INFO line. Raises ProtocolError if it is not what INFO may hold."""
    try:
        return read_typed(document, ServerInfo)
    except DocumentError as error:
        raise ProtocolError(f"the server's INFO is not understood: {error}") from error


def connect_command(
    info: ServerInfo,
    credentials: Credentials | None = None,
    *,
    name: str = "",
    tls: bool = False,
    echo: bool = True,
) -> bytes:
    """Build the ``CONNECT {…}\\r\\n`` line that answers ``info``.

    ``no_responders`` is asked for exactly when the server has headers, which it needs.
    """
    who = credentials or Credentials()
    document = _Connect(
        verbose=False,
        pedantic=False,
        tls_required=tls,
        name=name,
        lang="python-headrace",
        version=__version__,
        protocol=1,
        echo=echo,
        headers=info.headers,
        no_responders=info.headers,
        user=who.user,
        password=who.password,
        auth_token=who.token,
        jwt=who.jwt,
        nkey=who.nkey,
        sig=who.signature,
    )
    return b"CONNECT " + _encode_connect(document) + b"\r\n"


def lacks_permission(text: str) -> bool:
    """Whether a ``-ERR`` is about a permission that we lack. After anything else the server closes."""
    return text.lower().startswith("permissions violation")


def server_error(text: str) -> Exception:
    """The exception for a ``-ERR``."""
    if text.lower().startswith(_AUTHORIZATION):
        return AuthorizationError(f"the server refused us: {text}")
    return ServerError(text)


class Handshake:
    """A handshake with one server: INFO, TLS where it is asked for, CONNECT and PING, PONG.

    Whoever has the socket hands it what comes, begins TLS when ``needs_tls``, sends ``hello`` when there is
    an ``info``, and is done when ``is_accepted``.

    Args:
        credentials: ours, for a server's nonce; those in the server's URL come before them.
        is_encrypted: TLS stands already.
        wants_tls: whether TLS is asked for. None: it began before INFO, or there is none, whatever INFO says.
        name: of the connection, for the server's pages.

    Attributes:
        info: the server's, once it has introduced itself.
        needs_tls: whether TLS begins now.
        early: frames that came behind the handshake.
    """

    def __init__(
        self,
        address: ServerAddress,
        credentials: Callable[[str], Credentials],
        *,
        is_encrypted: bool,
        wants_tls: bool | None,
        name: str = "",
        echo: bool = True,
    ) -> None:
        self.info: ServerInfo | None = None
        self.needs_tls = False
        self.is_accepted = False
        self.early: list[Frame] = []
        self._address = address
        self._credentials = credentials
        self._is_encrypted = is_encrypted
        self._wants_tls = wants_tls
        self._name = name
        self._echo = echo

    def receive(self, frames: Sequence[Frame], held_bytes: int) -> bytes:
        """Take a chunk's frames, beyond which so many bytes came. What is to be sent at once.

        Raises:
            AuthorizationError: the server refused the credentials.
            ServerError: it refused something else.
            ProtocolError: it does not speak NATS, or spoke before TLS what could have been put in its mouth.
            ConnectFailedError: it does not offer TLS, which was asked for.
        """
        answers = b""
        for index, frame in enumerate(frames):
            op = frame[0]
            if op == INFO and self.info is None:
                self._introduced(
                    parse_info(frame[1]), is_last=index == len(frames) - 1 and not held_bytes
                )
            elif op == INFO:
                self.early.append(frame)
            elif op == PONG:
                self.is_accepted = True
                self.early.extend(frames[index + 1 :])
                break
            elif op == PING:
                answers += b"PONG\r\n"
            elif op == ERR:
                raise server_error(frame[1])
            elif op == BAD:
                raise frame[1]
        return answers

    def _introduced(self, info: ServerInfo, *, is_last: bool) -> None:
        if self._wants_tls is not None and (self._wants_tls or info.tls_required):
            if not (info.tls_required or info.tls_available):
                raise ConnectFailedError("TLS was asked for, and the server does not offer it")
            if not is_last:
                raise ProtocolError("the server sent bytes between INFO and the TLS handshake")
            self.needs_tls = True
        self.info = info

    def hello(self) -> bytes:
        """CONNECT and PING, once TLS stands where it is needed.

        Raises ConfigurationError: the credentials cannot be read.
        """
        assert self.info is not None
        credentials = self._address.credentials or self._credentials(self.info.nonce)
        connect = connect_command(
            self.info,
            credentials,
            name=self._name,
            tls=self._is_encrypted or self.needs_tls,
            echo=self._echo,
        )
        return connect + b"PING\r\n"


def parse_server(url: str) -> ServerAddress:
    """Read ``nats://[user:password@|token@]host[:port]``, or ``tls://…``, a bare ``host[:port]``, or a
    WebSocket's ``ws://…[/path]`` or ``wss://…``.

    User, password and token may be percent-encoded. Raises ConfigurationError, whose text never
    repeats what stands before an ``@``.
    """
    text = url.strip()
    shown = text.rpartition("@")[2]
    if "://" not in text:
        text = f"nats://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(
            f"server URL ending in {shown!r}: {_reason(error)}; expected nats://host:port"
        ) from None
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES:
        accepted = ", ".join(f"{name}://" for name in sorted(_SCHEMES))
        raise ConfigurationError(
            f"server URL ending in {shown!r}: unknown scheme {scheme!r}; accepted: {accepted}"
        )
    if not parts.hostname:
        raise ConfigurationError(
            f"server URL ending in {shown!r}: no host; expected nats://host:port"
        )
    websocket = scheme in _WEBSOCKET_PORTS
    path = "" if parts.path == "/" else parts.path
    if (path and not websocket) or parts.query or parts.fragment:
        raise ConfigurationError(
            f"server URL ending in {shown!r}: nothing may follow the port; expected nats://host:port"
        )
    credentials = Credentials()
    if parts.password is not None:
        credentials = Credentials(unquote(parts.username or ""), unquote(parts.password))
    elif parts.username:
        credentials = Credentials(token=unquote(parts.username))
    return ServerAddress(
        host=parts.hostname,
        port=_WEBSOCKET_PORTS.get(scheme, DEFAULT_PORT) if port is None else port,
        tls=scheme in _TLS_SCHEMES,
        credentials=credentials,
        websocket=websocket,
        path=path,
    )


def parse_servers(servers: str | Sequence[str]) -> list[ServerAddress]:
    """Read one URL, several separated by commas, or a sequence of either. Never empty."""
    given: Iterable[str] = (servers,) if isinstance(servers, str) else servers
    urls = [url for entry in given for url in entry.split(",") if url.strip()]
    if not urls:
        raise ConfigurationError("no server given; expected at least one nats://host:port")
    return [parse_server(url) for url in urls]


def _reason(error: ValueError) -> str:
    """Why urlsplit refused, without the URL itself in it."""
    text = str(error)
    if "port" in text.lower():
        return "the port is not a number between 0 and 65535"
    return "not a URL"
