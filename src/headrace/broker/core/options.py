"""What an operator may choose about the hub and its sessions."""

from __future__ import annotations

import msgspec

from ... import limits

COMPATIBLE_VERSION = "2.14.0"
"""The nats-server whose behaviour clients may expect: they switch features by ``INFO.version``."""

COMPATIBLE_API_LEVEL = 4
"""The JetStream API level of that version."""


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, with the limits of ``headrace.limits`` as defaults.

    ``host`` and ``port`` are what INFO shows. ``server_name`` empty: the generated server id.
    """

    server_name: str = ""
    host: str = "127.0.0.1"
    port: int = 4222
    headers: bool = True
    """Whether messages may have headers."""
    max_payload: int = limits.PAYLOAD_BYTES_MAX
    max_control_line: int = limits.CONTROL_LINE_BYTES_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    subscriptions_max: int = limits.SUBSCRIPTIONS_PER_CONNECTION_MAX
    subscription_tokens_max: int = limits.SUBSCRIPTION_TOKENS_MAX
    outbound_bytes_max: int = limits.OUTBOUND_BYTES_MAX
    ingest_pending_bytes_max: int = limits.INGEST_PENDING_BYTES_MAX
    auth_timeout_ns: int = _ns(limits.AUTH_TIMEOUT_S)
    ping_interval_ns: int = _ns(limits.PING_INTERVAL_S)
    ping_first_ns: int = _ns(2.0)
    pings_out_max: int = limits.PINGS_OUT_MAX
    domain: str = ""
    """Of JetStream; "" for none."""
    tls_required: bool = False
    tls_timeout_ns: int = _ns(limits.TLS_TIMEOUT_S)
    websocket: tuple[str, int, bool] | None = None
    """Of the listener for WebSockets, for monitoring: host, port, whether it has TLS; None: there is none."""
    tls_verify: bool = False
    """Whether clients are asked for certificates."""
    max_memory_bytes: int = -1
    max_storage_bytes: int = -1
    """What all streams may hold, for monitoring; -1: any amount."""
    sync: str = "always"
    """The disk mode, for monitoring."""
    store_dir: str = ""
    """Where the store is, for monitoring; empty: in memory."""
