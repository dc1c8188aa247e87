"""Which settings can change while the broker serves."""

from __future__ import annotations

import dataclasses
from typing import Final

from .options import BrokerOptions, TlsOptions

__all__ = ["reloadable"]

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
