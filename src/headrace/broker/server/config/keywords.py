"""The settings of a broker by keyword: the types of ``Broker(…)``.

Written by ``scripts/make-keywords`` from ``BrokerOptions``: change the fields there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from ....field_docs import described
from ...core.auth.authentication import User
from ...core.auth.jwt_auth import TokenTrust
from ...core.options import AccountOptions, AssetLimits
from .options import TlsOptions, WebSocketOptions


@described
class BrokerSettings(TypedDict, total=False):
    """The fields of ``BrokerOptions`` as keyword arguments."""

    host: str
    """The address or name to listen on; the loopback address by default."""

    port: int
    """The port for clients; 0, the default, and -1 are any free one."""

    jetstream: bool
    """Whether there are streams; True by default."""

    domain: str
    """The domain of JetStream, whose API answers under ``$JS.<domain>.API``, too; "", the default: none."""

    store_dir: str | Path | None
    """The directory where streams are kept; None, the default, keeps everything in memory."""

    sync: str
    """When what is acknowledged is on disk: ``always``, the default, before; ``interval:<seconds>`` so
    much later; ``os`` when the system likes."""

    user: str | None
    """The name of the only user; None, the default: anybody may connect."""

    password: str | None
    """The password of ``user``, plain or as a bcrypt hash; None by default."""

    token: str | None
    """The token that clients log in with, instead; None by default."""

    users: Sequence[User]
    """The users that may connect, with their permissions, instead; empty by default."""

    accounts: Sequence[AccountOptions]
    """Accounts, which have subjects and streams of their own; empty, the default: everybody is in one,
    which has JetStream."""

    system_account: str
    """The name of the account of the server's own events; ``$SYS`` by default."""

    trust: TokenTrust | None
    """Operators and accounts, whose signed tokens let users in, instead of ``users``; None by default."""

    no_auth_user: str | None
    """The name of the user whom clients without credentials act for; None, the default: nobody."""

    tls: TlsOptions | None
    """Certificates of the clients' listener; None, the default: without TLS."""

    monitor_port: int | None
    """The port of monitoring over HTTP; 0 and -1 are any free one. None, the default: no monitoring."""

    monitor_host: str | None
    """The address of monitoring; None, the default: that of the clients' listener."""

    websocket: WebSocketOptions | None
    """A listener for WebSockets; None by default."""

    server_name: str
    """Its name, without spaces; "", the default, is the id of the server."""

    insecure: bool
    """Whether strangers may be served: an address that others reach, without authentication; False by
    default."""

    headers: bool
    """Whether messages may have headers; JetStream is of little use without. True by default."""

    max_payload: int
    """The most bytes a message with its headers may have; 1,048,576 by default."""

    connections_max: int
    """How many clients may be connected; 65,536 by default, or what the limit of open files leaves."""

    outbound_bytes_max: int
    """Bytes of unsent output with which a client is closed as a slow consumer; 67,108,864 by default."""

    subscriptions_max: int
    """How many subscriptions one client may have; 100,000 by default."""

    subscription_tokens_max: int
    """How many tokens a subscription may have; 256 by default."""

    max_control_line: int
    """The most bytes a line of the protocol may have; 4,096 by default."""

    memory_bytes_max: int | None
    """The most bytes all streams in memory may hold, or reserve by ``max_bytes``; None, the default: any
    number."""

    file_bytes_max: int | None
    """The most bytes all streams in files may hold, or reserve by ``max_bytes``; None, the default: any
    number."""

    payload_cache_bytes: int
    """Bytes of what was written or read last that are kept in memory, of all streams in files together;
    67,108,864 by default."""

    scrub_bytes_s: int
    """Bytes a second that are read to find what the disk has lost; 2,097,152 by default, 0: none."""

    jetstream_limits: AssetLimits
    """What each stream, consumer and batch may be, in whatever account; the defaults of ``AssetLimits``."""

    pin_handover: Literal["drain", "immediate"]
    """``drain``, the default: a pinned client that lost its pin finishes what it has in hand before the
    next one is pinned, as the specification asks; ``immediate``: the next message pins, as nats-server
    does."""

    ping_interval: float
    """Seconds between pings to a client; 120 by default."""

    pings_out_max: int
    """A client is closed after this many unanswered pings; 2 by default."""

    auth_timeout: float
    """Seconds a client may take to log in; 2 by default."""
