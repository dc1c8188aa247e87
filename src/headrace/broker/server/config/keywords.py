"""The settings of a broker by keyword: the types of ``Broker(…)``.

Written by ``scripts/make-keywords`` from ``BrokerOptions``: change the fields there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from ...core.account_options import AccountOptions, AssetLimits
from ...core.auth.authentication import User
from ...core.auth.jwt_auth import TokenTrust
from .options import TlsOptions, WebSocketOptions


class BrokerSettings(TypedDict, total=False):
    """The fields of ``BrokerOptions`` as keyword arguments."""

    host: str
    port: int
    jetstream: bool
    domain: str
    """Of JetStream: its API answers under ``$JS.<domain>.API``, too."""

    store_dir: str | Path | None
    sync: str
    user: str | None
    password: str | None
    token: str | None
    users: Sequence[User]
    accounts: Sequence[AccountOptions]
    """Without any, everybody is in the default account, which has JetStream."""

    system_account: str
    trust: TokenTrust | None
    """Operators and accounts, whose signed tokens let users in; instead of ``users``."""

    no_auth_user: str | None
    """The name of the user whom clients without credentials act for."""

    tls: TlsOptions | None
    monitor_port: int | None
    monitor_host: str | None
    """None: that of the clients' listener."""

    websocket: WebSocketOptions | None
    server_name: str
    insecure: bool
    headers: bool
    """Whether messages may have headers; JetStream is of little use without."""

    max_payload: int
    connections_max: int
    outbound_bytes_max: int
    subscriptions_max: int
    subscription_tokens_max: int
    max_control_line: int
    memory_bytes_max: int | None
    """The most all streams in memory may hold, or reserve by ``max_bytes``; None: any."""

    file_bytes_max: int | None
    """The most all streams in files may hold, or reserve by ``max_bytes``; None: any."""

    payload_cache_bytes: int
    """How much of what was written or read last is kept in memory, of all streams in files together."""

    scrub_bytes_s: int
    """How many bytes a second are read to find what the disk has lost; 0: none."""

    jetstream_limits: AssetLimits
    """What each stream, consumer and batch may be, in whatever account."""

    pin_handover: Literal["drain", "immediate"]
    """``drain``: a pinned client that lost its pin finishes what it has in hand before the next one is
    pinned, as the specification asks; ``immediate``: the next message pins, as nats-server does."""

    ping_interval: float
    pings_out_max: int
    auth_timeout: float
