"""What a connection can be told, with defaults and units in one place."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigurationError
from ...field_docs import described
from ...handling.callbacks import check_plain
from ...subjects import is_valid_subject
from ..events import Event
from .handshake import Credentials
from .nkeys import KeyPair, read_credentials
from .outbox import INBOX_PREFIX_BYTES_MAX

if TYPE_CHECKING:
    from .connect_options import ConnectOptions

OUTBOUND_BYTES_DEFAULT: Final = 8 * 1024 * 1024
RECONNECT_BUFFER_BYTES_DEFAULT: Final = 8 * 1024 * 1024

_POSITIVE: Final = (
    "connect_timeout",
    "reconnect_wait",
    "ping_interval",
    "ping_timeout",
    "request_timeout",
    "delivery_timeout",
)
_LEAST: Final = (
    ("drain_timeout", 0, "0 seconds or more"),
    ("close_timeout", 0, "0 seconds or more"),
    ("max_pings_out", 1, "1 or more"),
    ("outbound_bytes", 1, "1 or more"),
    ("reconnect_buffer_bytes", 0, "0 or more"),
    ("max_reconnect_attempts", -1, "-1 (no limit) or more"),
)


@described
@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """A connection's settings. Durations are seconds, sizes are bytes.

    Raises:
        ConfigurationError: a value is out of range; the text names the option.
    """

    name: str = ""
    """Shown by the server in its monitoring; "" by default."""

    user: str = field(default="", repr=False)
    """The name to log in with; "" by default. Credentials in a server's URL come first."""

    password: str = field(default="", repr=False)
    """The password of ``user``; "" by default."""

    token: str = field(default="", repr=False)
    """A token to log in with, instead; "" by default."""

    nkey_seed: str = field(default="", repr=False)
    """A user's NKEY seed (``SU…``), instead; "" by default."""

    credentials_file: str | Path = ""
    """A file with a user's JWT and NKEY seed (``.creds``), instead; read again for each connection. "" by
    default."""

    tls: ssl.SSLContext | bool = False
    """True: TLS with the system's trust store. A context: that one. Also on when the URL says ``tls://``
    or the server demands it. False by default."""

    tls_first: bool = False
    """Whether TLS starts before the server says a word (its ``handshake_first``); False by default."""

    tls_hostname: str = ""
    """The name the certificate must carry, when it is not the URL's host; "" by default."""

    connect_timeout: float = 2.0
    """Seconds for one server: TCP, TLS and the handshake together; 2 by default."""

    reconnect: bool = True
    """Whether a lost connection is restored; False: the first loss closes it for good. True by default."""

    reconnect_wait: float = 0.1
    """Seconds of the first pause before a server is tried again, 0.1 by default; each next one is twice as
    long, but in the first two seconds no longer than 0.25 …"""

    reconnect_wait_max: float = 5.0
    """… up to this many seconds, 5 by default, and has a random part, so that clients do not return all at
    once."""

    max_reconnect_attempts: int = -1
    """Attempts per server and outage before it is given up; -1, the default: never."""

    retry_first_connect: bool = False
    """Whether ``connect`` keeps trying as a reconnect does, instead of failing after one round; False by
    default."""

    randomize_servers: bool = True
    """Whether servers are tried in random order, not in the order given; True by default."""

    discover_servers: bool = True
    """Whether servers named by other servers join the list; True by default."""

    ping_interval: float = 120.0
    """Seconds between pings to the server; 120 by default."""

    max_pings_out: int = 2
    """The connection counts as lost after this many unanswered pings; 2 by default."""

    ping_timeout: float = 4.0
    """Seconds, 4 by default, that the answer to a ping may take which is sent at once when a call was not
    answered in time. Then the connection counts as lost, if nothing else shows that the server is there."""

    outbound_bytes: int = OUTBOUND_BYTES_DEFAULT
    """Bytes of unsent output above which ``await publish`` waits, 8 MiB by default; four times as much is
    the hard limit, at which ``publish_nowait`` raises BufferFullError."""

    reconnect_buffer_bytes: int = RECONNECT_BUFFER_BYTES_DEFAULT
    """Bytes that may be published while disconnected, 8 MiB by default; one message more raises
    BufferFullError. 0: publishing while disconnected always does."""

    fail_while_disconnected: bool = False
    """Whether what is published, requested or called while disconnected raises DisconnectedError at once,
    instead of waiting for the next connection; False by default. Acknowledgements wait even so."""

    request_timeout: float = 5.0
    """Seconds that a request and a call of the API wait for an answer; 5 by default."""

    delivery_timeout: float = 120.0
    """Seconds for which what waits for a leader, in a cluster, is sent again; 120 by default. See
    ``jetstream``."""

    drain_timeout: float = 30.0
    """Seconds that ``drain`` waits for the takers of messages; 30 by default."""

    close_timeout: float = 5.0
    """Seconds that ``close`` waits for messages in hand to be handled, 5 by default: callbacks that run, and
    who iterates a consumer. Then such callbacks are cancelled."""

    inbox_prefix: str = "_INBOX"
    """First tokens of every reply subject, for accounts that permit only their own; ``_INBOX`` by default."""

    echo: bool = True
    """Whether we receive what we publish ourselves; True by default."""

    tracing: bool = False
    """Whether what is published while a trace is active carries its context, see ``client.tracing``; False
    by default."""

    on_event: Callable[[Event], object] | None = None
    """Called for each connection event, on the event loop, see ``events``; None by default."""

    def __post_init__(self) -> None:
        for option in _POSITIVE:
            value = getattr(self, option)
            holds = isinstance(value, int | float) and value > 0
            _require(holds, option, value, "more than 0 seconds")
        least = f"at least reconnect_wait ({self.reconnect_wait})"
        for option, smallest, accepted in (
            ("reconnect_wait_max", self.reconnect_wait, least),
            *_LEAST,
        ):
            value = getattr(self, option)
            _require(value >= smallest, option, value, accepted)
        prefix = self.inbox_prefix
        accepted = (
            f"a subject without wildcards of at most {INBOX_PREFIX_BYTES_MAX} bytes, as _INBOX"
        )
        fits = len(prefix.encode()) <= INBOX_PREFIX_BYTES_MAX
        holds = fits and is_valid_subject(prefix.encode())
        _require(holds, "inbox_prefix", prefix[: INBOX_PREFIX_BYTES_MAX + 1], accepted)
        check_plain("option on_event", self.on_event)
        if self.password and not self.user:
            raise ConfigurationError("option password is set but user is not; both are needed")

        ways = [bool(w) for w in (self.user, self.token, self.nkey_seed, self.credentials_file)]
        if sum(ways) > 1:
            raise ConfigurationError(
                "give one way to log in: user and password, token, nkey_seed or credentials_file"
            )
        if self.nkey_seed:
            KeyPair(self.nkey_seed)  # refused here rather than with each attempt to connect

    def credentials(self, nonce: str) -> Credentials:
        """What CONNECT says of us to a server whose INFO has this nonce.

        Raises ConfigurationError: the credentials file cannot be read.
        """
        if self.nkey_seed:
            pair = KeyPair(self.nkey_seed)
            return Credentials(nkey=pair.public_key, signature=pair.sign_nonce(nonce))
        if self.credentials_file:
            user = read_credentials(self.credentials_file)
            return Credentials(jwt=user.jwt, signature=user.key.sign_nonce(nonce))
        return Credentials(self.user, self.password, self.token)

    @classmethod
    def of(cls, values: ConnectOptions) -> Options:
        """Options from keywords; an unknown one is named, with the closest known ones."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigurationError(
                f"unknown connection option {', '.join(unknown)}; accepted: {', '.join(sorted(known))}"
            )
        return cls(**values)


def _require(holds: bool, option: str, value: Any, accepted: str) -> None:
    if not holds:
        raise ConfigurationError(f"option {option} is {value!r}; accepted: {accepted}")
