"""Monitoring of the server, in the shapes of nats-server's endpoints.

Each function returns a JSON-ready dict without secrets, and costs nothing while nobody asks. Pages about
other servers say that there are none, in the shapes that tools look for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...._version import __version__
from ....api.times import format_time
from ....limits import WRITE_DEADLINE_S
from ..options import COMPATIBLE_API_LEVEL, COMPATIBLE_VERSION
from .accounts import PER_PAGE, account_details
from .connections import format_uptime, head_of
from .monitored import Monitored

_FINDINGS_SHOWN: Final = 100


def varz(hub: Monitored, process: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """General numbers. ``process`` adds what only the shell knows, such as memory."""
    options = hub.options
    in_messages, out_messages, in_bytes, out_bytes = _traffic(hub)
    document: dict[str, Any] = {
        "server_id": hub.server_id,
        "server_name": hub.server_name,
        "version": COMPATIBLE_VERSION,
        "proto": 1,
        "go": "",
        "headrace": __version__,
        "host": options.host,
        "port": options.port,
        "auth_required": hub.authenticator.required,
        "tls_required": options.tls_required,
        "max_connections": options.connections_max,
        "max_subscriptions": options.subscriptions_max,
        "ping_interval": options.ping_interval_ns,
        "ping_max": options.pings_out_max,
        "auth_timeout": options.auth_timeout_ns / 1e9,
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.outbound_bytes_max,
        "start": format_time(hub.started_ns),
        "now": format_time(hub.clock.now_ns()),
        "uptime": format_uptime(hub.clock.monotonic_ns() - hub.started_monotonic_ns),
        "connections": len(hub.sessions),
        "total_connections": hub.connections_total,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        "in_msgs": in_messages,
        "out_msgs": out_messages,
        "in_bytes": in_bytes,
        "out_bytes": out_bytes,
        # Nobody else is there to send or receive.
        "in_client_msgs": in_messages,
        "out_client_msgs": out_messages,
        "in_client_bytes": in_bytes,
        "out_client_bytes": out_bytes,
        "slow_consumers": hub.slow_consumers,
        "slow_consumer_stats": {
            "clients": hub.slow_consumers,
            "routes": 0,
            "gateways": 0,
            "leafs": 0,
        },
        "system_account": hub.accounts.system_name,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": _websocket(hub),
        "tls_timeout": options.tls_timeout_ns / 1e9,
        "write_deadline": round(WRITE_DEADLINE_S * 1e9),
        "config_load_time": format_time(hub.configured_ns),
        "subscriptions": sum(account.router.subscriptions for account in hub.accounts),
        "jetstream": {},
    }
    if hub.accounts.engines:
        document["jetstream"] = {"config": _jetstream_config(hub), "stats": _jetstream_stats(hub)}
        document["jetstream"]["limits"] = {}
    document.update(process or {})
    return document


def jsz(
    hub: Monitored,
    *,
    account: str = "",
    accounts: bool = False,
    streams: bool = False,
    consumers: bool = False,
    config: bool = False,
    offset: int = 0,
    limit: int = PER_PAGE,
) -> dict[str, Any]:
    """JetStream's numbers; ``disabled`` where there is none.

    Any of the switches, or the name of an account, adds the details of accounts: those of one page, in the
    order of their names.
    """
    document = head_of(hub)
    if not hub.accounts.engines:
        return {**document, "disabled": True}
    snapshots = [engine.snapshot() for engine in hub.accounts.engines]
    totals = ("streams", "consumers", "messages", "bytes")
    document = {
        **_jetstream_stats(hub),
        **document,
        "config": _jetstream_config(hub),
        **{name: sum(snapshot[name] for snapshot in snapshots) for name in totals},
        "limits": {},
        "total": len(snapshots),
    }
    document.update(_trouble(hub))
    document.update(hub.about_store())
    if account or accounts or streams or consumers:
        document["account_details"] = account_details(
            hub,
            account,
            streams=streams,
            consumers=consumers,
            config=config,
            offset=offset,
            limit=limit,
        )
    return document


def _websocket(hub: Monitored) -> dict[str, Any]:
    if hub.options.websocket is None:
        return {}
    host, port, has_tls = hub.options.websocket
    return {"host": host, "port": port, **({} if has_tls else {"no_tls": True})}


def _traffic(hub: Monitored) -> tuple[int, int, int, int]:
    """Messages in and out, bytes in and out, of living and ended sessions."""
    in_messages, out_messages, in_bytes, out_bytes = hub.past_traffic
    for session in hub.sessions.values():
        in_messages += session.in_messages
        out_messages += session.out_messages
        in_bytes += session.in_bytes
        out_bytes += session.output.payload_bytes
    return in_messages, out_messages, in_bytes, out_bytes


def _trouble(hub: Monitored) -> dict[str, Any]:
    """What was found wrong with the store, and the streams that are not served; nothing if all is well."""
    storage = hub.storage
    trouble: dict[str, Any] = {}
    if storage is not None and storage.report:
        found = storage.report
        trouble["store_findings"] = len(found)
        trouble["store_report"] = [
            {"path": finding.path, "stream": finding.stream, "what": finding.what}
            for finding in found[:_FINDINGS_SHOWN]
        ]
    lost = [
        {"account": account.name, "stream": name, "why": why}
        for account in hub.accounts
        if account.engine is not None
        for name, why in sorted(account.engine.registry.lost.reasons.items())
    ]
    if lost:
        trouble["lost_streams"] = lost
    return trouble


def _jetstream_config(hub: Monitored) -> dict[str, Any]:
    options = hub.options
    return {
        "max_memory": options.max_memory_bytes,
        "max_storage": options.max_storage_bytes,
        "store_dir": options.store_dir,
        "sync": options.sync,
        "sync_always": options.sync == "always",
        "strict": True,
    }


def _jetstream_stats(hub: Monitored) -> dict[str, Any]:
    snapshots = [engine.snapshot() for engine in hub.accounts.engines]
    names = ("memory", "storage", "reserved_memory", "reserved_storage")
    api = {
        name: sum(snapshot["api"][name] for snapshot in snapshots) for name in ("total", "errors")
    }
    return {
        **{name: sum(snapshot[name] for snapshot in snapshots) for name in names},
        "accounts": len(snapshots),
        "ha_assets": 0,
        "api": {"level": COMPATIBLE_API_LEVEL, **api},
    }


def routez(hub: Monitored) -> dict[str, Any]:
    """No routes to other servers of a cluster."""
    return {**head_of(hub), "server_name": hub.server_name, "num_routes": 0, "routes": []}


def gatewayz(hub: Monitored) -> dict[str, Any]:
    """No gateways to other clusters."""
    return {**head_of(hub), "outbound_gateways": {}, "inbound_gateways": {}}


def leafz(hub: Monitored) -> dict[str, Any]:
    """No leaf nodes."""
    return {**head_of(hub), "leafnodes": 0, "leafs": []}
