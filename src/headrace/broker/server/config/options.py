"""What an operator may choose about a broker, in one place: the flags, the file and the constructor."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from .... import limits
from ....clock import SystemClock
from ....errors import ConfigurationError
from ....field_docs import described
from ...core.accounts.accounts import check_domain
from ...core.auth.authentication import (
    Authenticator,
    NoAuthentication,
    TokenAuthentication,
    User,
    UserAuthentication,
    is_hash,
)
from ...core.options import (
    DEFAULT_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountOptions,
    AssetLimits,
    JetStreamLimits,
    check_accounts,
)
from ..tls import TellingContext

if TYPE_CHECKING:
    from ...core.auth.jwt_auth import TokenTrust, TrustedTokens
    from ..passwords import Passwords

PORT_MAX: Final = 65_535


@described
@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Certificates of the listener.

    ``ca_file`` and ``verify_clients`` ask clients for certificates. With ``handshake_first`` the
    client speaks TLS from the first byte; otherwise the server says INFO in clear before, as NATS does.
    """

    certificate_file: str | Path
    """The PEM file with the certificate and those it stands on."""

    key_file: str | Path
    """The PEM file with its key, without passphrase."""

    ca_file: str | Path | None = None
    """The PEM file with the authorities that sign clients' certificates; None, the default: clients show
    none."""

    verify_clients: bool = False
    """Whether a client must show a certificate that ``ca_file`` signed; False by default."""

    handshake_first: bool = False
    """Whether the client speaks TLS from the first byte; False, the default: the server says INFO in clear
    before."""

    timeout: float = limits.TLS_TIMEOUT_S
    """Seconds a handshake may take; 2 by default."""

    map_clients: bool = False
    """Whether the names in a client's certificate say which user it is; implies ``verify_clients``. False
    by default."""

    def context(self) -> ssl.SSLContext:
        """A context of TLS 1.2 and later. Raises ConfigurationError naming the file that is wrong."""
        context = TellingContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"tls: cannot use the certificate {str(self.certificate_file)!r} with the key "
                f"{str(self.key_file)!r}: {error}; accepted are matching PEM files without passphrase"
            ) from error
        if self.ca_file is not None:
            try:
                context.load_verify_locations(self.ca_file)
            except OSError as error:
                raise ConfigurationError(
                    f"tls: cannot use the CA file {str(self.ca_file)!r}: {error}; accepted is a PEM file"
                ) from error
        if self.verify_clients or self.map_clients:
            if self.ca_file is None:
                raise ConfigurationError("tls: verifying clients needs a CA file")
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@described
class WebSocketOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A listener for WebSockets beside that for clients; ``tls`` of None: without TLS.

    ``same_origin`` and ``allowed_origins`` are about pages in browsers; other clients name no origin.
    """

    port: int
    """The port; 0 and -1 are any free one."""

    host: str | None = None
    """The address to listen on; None, the default: that of the clients' listener."""

    tls: TlsOptions | None = None
    """Its certificates; None, the default: without TLS."""

    same_origin: bool | None = None
    """Whether a page in a browser must come from this host and port. None, the default: if nobody has to log
    in and there are no ``allowed_origins``, as any site's page could use the broker then."""

    allowed_origins: Sequence[str] = ()
    """The origins that pages in browsers may come from; empty, the default: ``same_origin`` decides."""

    compression: bool = False
    """Whether messages may be compressed; False by default."""

    handshake_timeout: float = limits.TLS_TIMEOUT_S
    """Seconds the upgrade may take; 2 by default."""


@described
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Settings of a broker; ``check`` says what is wrong with them.

    ``port`` of 0 or -1 is any free one. ``store_dir`` of None keeps everything in memory.
    ``insecure`` permits serving strangers: a non-loopback ``host`` without authentication.
    ``sync`` is ``always`` (on disk before it is acknowledged), ``interval:<seconds>`` or ``os``.
    """

    host: str = "127.0.0.1"
    """The address or name to listen on; the loopback address by default."""

    port: int = 0
    """The port for clients; 0, the default, and -1 are any free one."""

    jetstream: bool = True
    """Whether there are streams; True by default."""

    domain: str = ""
    """The domain of JetStream, whose API answers under ``$JS.<domain>.API``, too; "", the default: none."""

    store_dir: str | Path | None = None
    """The directory where streams are kept; None, the default, keeps everything in memory."""

    sync: str = "always"
    """When what is acknowledged is on disk: ``always``, the default, before; ``interval:<seconds>`` so
    much later; ``os`` when the system likes."""

    user: str | None = None
    """The name of the only user; None, the default: anybody may connect."""

    password: str | None = field(default=None, repr=False)
    """The password of ``user``, plain or as a bcrypt hash; None by default."""

    token: str | None = field(default=None, repr=False)
    """The token that clients log in with, instead; None by default."""

    users: Sequence[User] = ()
    """The users that may connect, with their permissions, instead; empty by default."""

    accounts: Sequence[AccountOptions] = ()
    """Accounts, which have subjects and streams of their own; empty, the default: everybody is in one,
    which has JetStream."""

    system_account: str = SYSTEM_ACCOUNT
    """The name of the account of the server's own events; ``$SYS`` by default."""

    trust: TokenTrust | None = None
    """Operators and accounts, whose signed tokens let users in, instead of ``users``; None by default."""

    no_auth_user: str | None = None
    """The name of the user whom clients without credentials act for; None, the default: nobody."""

    tls: TlsOptions | None = None
    """Certificates of the clients' listener; None, the default: without TLS."""

    monitor_port: int | None = None
    """The port of monitoring over HTTP; 0 and -1 are any free one. None, the default: no monitoring."""

    monitor_host: str | None = None
    """The address of monitoring; None, the default: that of the clients' listener."""

    websocket: WebSocketOptions | None = None
    """A listener for WebSockets; None by default."""

    server_name: str = ""
    """Its name, without spaces; "", the default, is the id of the server."""

    insecure: bool = False
    """Whether strangers may be served: an address that others reach, without authentication; False by
    default."""

    headers: bool = True
    """Whether messages may have headers; JetStream is of little use without. True by default."""

    max_payload: int = limits.PAYLOAD_BYTES_MAX
    """The most bytes a message with its headers may have; 1,048,576 by default."""

    connections_max: int = limits.CONNECTIONS_MAX
    """How many clients may be connected; 65,536 by default, or what the limit of open files leaves."""

    outbound_bytes_max: int = limits.OUTBOUND_BYTES_MAX
    """Bytes of unsent output with which a client is closed as a slow consumer; 67,108,864 by default."""

    subscriptions_max: int = limits.SUBSCRIPTIONS_PER_CONNECTION_MAX
    """How many subscriptions one client may have; 100,000 by default."""

    subscription_tokens_max: int = limits.SUBSCRIPTION_TOKENS_MAX
    """How many tokens a subscription may have; 256 by default."""

    max_control_line: int = limits.CONTROL_LINE_BYTES_MAX
    """The most bytes a line of the protocol may have; 4,096 by default."""

    memory_bytes_max: int | None = None
    """The most bytes all streams in memory may hold, or reserve by ``max_bytes``; None, the default: any
    number."""

    file_bytes_max: int | None = None
    """The most bytes all streams in files may hold, or reserve by ``max_bytes``; None, the default: any
    number."""

    payload_cache_bytes: int = limits.PAYLOAD_CACHE_BYTES_DEFAULT
    """Bytes of what was written or read last that are kept in memory, of all streams in files together;
    67,108,864 by default."""

    scrub_bytes_s: int = limits.SCRUB_BYTES_S
    """Bytes a second that are read to find what the disk has lost; 2,097,152 by default, 0: none."""

    jetstream_limits: AssetLimits = field(default_factory=AssetLimits)
    """What each stream, consumer and batch may be, in whatever account; the defaults of ``AssetLimits``."""

    pin_handover: Literal["drain", "immediate"] = "drain"
    """``drain``, the default: a pinned client that lost its pin finishes what it has in hand before the
    next one is pinned, as the specification asks; ``immediate``: the next message pins, as nats-server
    does."""

    ping_interval: float = limits.PING_INTERVAL_S
    """Seconds between pings to a client; 120 by default."""

    pings_out_max: int = limits.PINGS_OUT_MAX
    """A client is closed after this many unanswered pings; 2 by default."""

    auth_timeout: float = limits.AUTH_TIMEOUT_S
    """Seconds a client may take to log in; 2 by default."""

    def check(self) -> None:
        """Raise ConfigurationError for the first setting that is wrong."""
        websocket = None if self.websocket is None else self.websocket.port
        for name, port in (
            ("port", self.port),
            ("monitor_port", self.monitor_port),
            ("websocket.port", websocket),
        ):
            if port is not None and not -1 <= port <= PORT_MAX:
                raise ConfigurationError(
                    f"{name}: {port}; accepted are 1 to {PORT_MAX}, and 0 or -1 for any free one"
                )
        if not self.host:
            raise ConfigurationError("host: empty; accepted is an address or a host name")
        for name, number in (
            ("max_payload", self.max_payload),
            ("connections_max", self.connections_max),
            ("subscriptions_max", self.subscriptions_max),
            ("subscription_tokens_max", self.subscription_tokens_max),
            ("max_control_line", self.max_control_line),
            ("ping_interval", self.ping_interval),
            ("pings_out_max", self.pings_out_max),
            ("auth_timeout", self.auth_timeout),
        ):
            if number <= 0:
                raise ConfigurationError(f"{name}: {number}; accepted is more than 0")
        for name, most in (
            ("memory_bytes_max", self.memory_bytes_max),
            ("file_bytes_max", self.file_bytes_max),
            ("payload_cache_bytes", self.payload_cache_bytes),
            ("scrub_bytes_s", self.scrub_bytes_s),
        ):
            if most is not None and most < 0:
                raise ConfigurationError(f"{name}: {most}; accepted is 0 or more")
        if self.pin_handover not in ("drain", "immediate"):
            raise ConfigurationError(
                f"pin_handover: {self.pin_handover!r}; accepted are 'drain' and 'immediate'"
            )
        if self.tls is not None and self.tls.timeout <= 0:
            raise ConfigurationError(f"tls: timeout {self.tls.timeout}; accepted is more than 0")
        if self.outbound_bytes_max < self.max_payload:
            raise ConfigurationError(
                f"outbound_bytes_max: {self.outbound_bytes_max}; accepted is at least max_payload, "
                f"which is {self.max_payload}"
            )
        if any(character.isspace() for character in self.server_name):
            raise ConfigurationError(
                f"server_name: {self.server_name!r}; accepted is a name without whitespace"
            )
        check_domain(self.domain)
        self.check_accounts()
        self.authenticator()

    def all_accounts(self) -> list[AccountOptions]:
        """The accounts there will be. Without ``accounts`` the default one has JetStream, else none."""
        if self.trust is not None:
            return self._trusted_tokens(self.trust).accounts
        if self.accounts:
            return list(self.accounts)
        return [AccountOptions(name=DEFAULT_ACCOUNT, jetstream=JetStreamLimits())]

    def check_accounts(self) -> None:
        """Raise ConfigurationError for accounts that do not fit each other or the users."""
        accounts = self.all_accounts()
        check_accounts(accounts)
        names = {account.name for account in accounts} | {DEFAULT_ACCOUNT, self.system_account}
        for account in accounts:
            if account.name == self.system_account and account.jetstream is not None:
                raise ConfigurationError(
                    f"accounts: {account.name} is the system account, which cannot have JetStream"
                )
        for user in self.users:
            if user.account and user.account not in names:
                raise ConfigurationError(
                    f"users: {user.name!r}: there is no account {user.account!r}; "
                    f"accepted is one of {sorted(names)}"
                )

    def authenticator(self) -> Authenticator:
        """The authentication these settings describe. Raises ConfigurationError."""
        ways = [
            name
            for name, given in (
                ("operator", self.trust is not None),
                ("token", self.token is not None),
                ("user and password", self.user is not None or self.password is not None),
                ("users", bool(self.users)),
            )
            if given
        ]
        if len(ways) > 1:
            raise ConfigurationError(
                f"{' and '.join(ways)} are given; accepted is one way to authenticate"
            )
        if self.trust is not None and self.accounts:
            raise ConfigurationError("accounts and operator are given; accepted is one of them")
        if self.trust is not None:
            return self._trusted_tokens(self.trust)
        maps = self.tls is not None and self.tls.map_clients
        if self.no_auth_user is not None and not self.users:
            raise ConfigurationError("no_auth_user: there are no users; accepted is one of users")
        if maps and not self.users:
            raise ConfigurationError("tls: verify_and_map needs users, to map certificates to")
        if self.token is not None:
            return TokenAuthentication(self.token, passwords=_checker_for([self.token]))
        if self.users:
            from ..keys import key_checker

            has_keys = any(user.nkey for user in self.users)
            return UserAuthentication(
                self.users,
                default=self.no_auth_user,
                keys=key_checker() if has_keys else None,
                passwords=_checker_for([user.password for user in self.users]),
                map_certificates=maps,
            )
        if self.user is not None or self.password is not None:
            if not (self.user and self.password):
                raise ConfigurationError(
                    "user and password: each needs the other, and to say something"
                )
            user = User(self.user, self.password)
            return UserAuthentication([user], passwords=_checker_for([user.password]))
        return NoAuthentication()

    @staticmethod
    def _trusted_tokens(trust: TokenTrust) -> TrustedTokens:
        from ...core.auth.jwt_auth import TrustedTokens
        from ..keys import key_checker

        keys = key_checker()
        return TrustedTokens(trust, keys, keys.verifies, SystemClock())


def _checker_for(secrets: Sequence[str]) -> Passwords | None:
    """What compares hashes, where there is one. Raises ConfigurationError without the extra."""
    if not any(map(is_hash, secrets)):
        return None
    from ..passwords import password_checker

    return password_checker()


_FIXED: Final = (
    "host",
    "port",
    "monitor_port",
    "monitor_host",
    "websocket",
    "server_name",
    "headers",
    "jetstream",
    "domain",
    "jetstream_limits",
    "store_dir",
    "sync",
    "memory_bytes_max",
    "file_bytes_max",
    "payload_cache_bytes",
    "scrub_bytes_s",
    "system_account",
    "pin_handover",
)


def reloadable(before: BrokerOptions, after: BrokerOptions) -> tuple[BrokerOptions, list[str]]:
    """The settings to go on with, and the names of those that stay because they need a restart."""
    left = [name for name in _FIXED if getattr(before, name) != getattr(after, name)]
    tls, left_of_tls = _reloadable_tls(before.tls, after.tls)
    kept = {name: getattr(before, name) for name in _FIXED}
    return dataclasses.replace(after, tls=tls, **kept), left + left_of_tls


def _reloadable_tls(
    before: TlsOptions | None, after: TlsOptions | None
) -> tuple[TlsOptions | None, list[str]]:
    """Clients are listened to with TLS or without; one that starts with it keeps its way of asking."""
    if before is None or after is None:
        return before, [] if before is after else ["tls"]
    fixed = ["handshake_first"]
    if before.handshake_first:
        fixed += ["ca_file", "verify_clients", "map_clients", "timeout"]
    left = [f"tls.{name}" for name in fixed if getattr(before, name) != getattr(after, name)]
    return dataclasses.replace(after, **{name: getattr(before, name) for name in fixed}), left
