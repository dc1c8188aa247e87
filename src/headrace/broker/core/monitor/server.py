"""Monitoring of the server, its accounts and its health, in the shapes of nats-server's endpoints.

Each function returns a JSON-ready dict without secrets, and costs nothing while nobody asks. Pages about
other servers say that there are none, in the shapes that tools look for. The sentences of ``healthz`` are
those of nats-server's ``/healthz``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from ...._version import __version__
from ....api.times import format_time
from ....errors import ConfigurationError
from ....limits import WRITE_DEADLINE_S
from ....subjects import is_valid_subject, matches
from ..accounts.accounts import Account
from ..net.session import HostedAccount, Session
from ..options import COMPATIBLE_API_LEVEL, COMPATIBLE_VERSION
from .connections import Monitored, format_uptime, head_of, subscription_detail

PER_PAGE: Final = 1024
_FINDINGS_SHOWN: Final = 100


def accountz(hub: Monitored, name: str = "") -> dict[str, Any] | None:
    """The names of all accounts, or the account of this name; None if there is none."""
    document: dict[str, Any] = {**head_of(hub), "system_account": hub.accounts.system_name}
    if not name:
        return {**document, "accounts": sorted(account.name for account in hub.accounts)}
    account = hub.accounts.get(name)
    return None if account is None else {**document, "account_detail": _account(account)}


def accstatz(
    hub: Monitored, *, unused: bool = False, names: Collection[str] = frozenset()
) -> dict[str, Any]:
    """The connections each account has now, and what went through them.

    ``unused``: of accounts without any, too; ``names``: only of these accounts.
    """
    return {
        **head_of(hub),
        "account_statz": [
            traffic_of(hub, account)
            for account in hub.accounts
            if (account.name in names if names else True)
            and (unused or account.connections or account.router.subscriptions)
        ],
    }


def traffic_of(hub: Monitored, account: HostedAccount) -> dict[str, Any]:
    """The connections an account has now, and what went through them."""
    sessions = [session for session in hub.sessions.values() if session.account is account]
    return {
        "acc": account.name,
        "name": account.name,
        "conns": account.connections,
        "leafnodes": 0,
        "total_conns": account.connections,
        "num_subscriptions": account.router.subscriptions,
        "sent": {
            "msgs": sum(session.out_messages for session in sessions),
            "bytes": sum(session.output.payload_bytes for session in sessions),
        },
        "received": {
            "msgs": sum(session.in_messages for session in sessions),
            "bytes": sum(session.in_bytes for session in sessions),
        },
        "slow_consumers": 0,
    }


def _account(account: Account) -> dict[str, Any]:
    options = account.options
    return {
        "account_name": account.name,
        "complete": True,
        "expired": False,
        "jetstream_enabled": account.engine is not None,
        "leafnode_connections": 0,
        "client_connections": account.connections,
        "subscriptions": account.router.subscriptions,
        "exports": [
            {
                "subject": export.subject.decode(),
                "type": export.kind,
                "response_type": "Stream" if export.many_answers else "Singleton",
                **({"approved_accounts": sorted(export.accounts)} if export.accounts else {}),
            }
            for export in options.exports
        ],
        "imports": [
            {
                "subject": wanted.subject.decode(),
                "account": wanted.account,
                "local_subject": wanted.local.decode(),
                "type": wanted.kind,
            }
            for wanted in options.imports
        ],
    }


def account_details(
    hub: Monitored,
    name: str = "",
    *,
    streams: bool = False,
    consumers: bool = False,
    config: bool = False,
    offset: int = 0,
    limit: int = PER_PAGE,
) -> list[dict[str, Any]]:
    """JetStream by account: what each uses, and its streams and consumers when asked for."""
    details: list[dict[str, Any]] = []
    accounts = sorted(
        (each for each in hub.accounts if each.engine is not None and name in ("", each.name)),
        key=lambda each: each.name,
    )
    for account in accounts[max(0, offset) :][: limit if limit > 0 else PER_PAGE]:
        engine = account.engine
        assert engine is not None
        snapshot = engine.snapshot()
        detail: dict[str, Any] = {
            "name": account.name,
            "id": account.name,
            **{
                key: snapshot[key]
                for key in ("memory", "storage", "reserved_memory", "reserved_storage")
            },
            "accounts": 1,
            "ha_assets": 0,
            **{key: snapshot[key] for key in ("streams", "consumers", "messages", "bytes")},
            "api": {"level": COMPATIBLE_API_LEVEL, **snapshot["api"]},
        }
        if streams or consumers:
            # That the leader is named is what `nats server stream-check` relies on.
            leads = {"cluster": {"leader": hub.server_name}}
            streams_found = engine.details(consumers=consumers, config=config)
            detail["stream_detail"] = [{**each, **leads} for each in streams_found]
        details.append(detail)
    return details


def subsz(
    hub: Monitored,
    *,
    name: str = "",
    listed: bool = False,
    test: str = "",
    offset: int = 0,
    limit: int = PER_PAGE,
) -> dict[str, Any]:
    """How many subscriptions there are, and a page of them when ``listed``.

    With ``test``, only those that a message to this subject would reach. Raises ConfigurationError when
    nothing can be published to it.
    """
    if test and not is_valid_subject(test.encode()):
        raise ConfigurationError(f"invalid test subject, must be valid publish subject: {test}")
    offset, limit = max(0, offset), max(1, min(limit, PER_PAGE))
    accounts = [account for account in hub.accounts if not name or account.name == name]
    count = sum(account.router.subscriptions for account in accounts)
    document: dict[str, Any] = {
        **head_of(hub),
        "num_subscriptions": count,
        **_matching(hub, accounts),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if listed:
        subject = test.encode()
        found = list(_subscriptions(hub, accounts, subject)) if test else []
        document["total"] = len(found) if test else count
        everything = iter(found) if test else _subscriptions(hub, accounts, b"")
        page = islice(everything, offset, offset + limit)
        document["subscriptions_list"] = [subscription_detail(*one) for one in page]
    return document


def _matching(hub: Monitored, accounts: list[Account]) -> dict[str, Any]:
    """How subjects found their receivers. The caches hold what was published to: subjects, or all but their
    last token where that says as much."""
    routers = [account.router for account in accounts]
    fanouts = [
        len(route.plain) + len(route.groups) for router in routers for route in router.cached()
    ]
    sessions = [each for each in hub.sessions.values() if each.account in accounts]
    matches_done = sum(each.in_messages for each in sessions)
    misses = sum(router.misses for router in routers)
    return {
        "num_cache": len(fanouts),
        "num_inserts": sum(router.added for router in routers),
        "num_removes": sum(router.added - router.subscriptions for router in routers),
        "num_matches": matches_done,
        "cache_hit_rate": max(0.0, 1 - misses / matches_done) if matches_done else 0.0,
        "max_fanout": max(fanouts, default=0),
        "avg_fanout": sum(fanouts) / len(fanouts) if fanouts else 0.0,
    }


def _subscriptions(
    hub: Monitored, accounts: list[Account], subject: bytes
) -> Iterator[tuple[Session, bytes]]:
    """Those of some accounts, with the sessions that have them; that hear ``subject``, if there is one."""
    for session in hub.sessions.values():
        if session.account in accounts:
            for sid, subscription in session.subscriptions.items():
                if not subject or matches(subscription.pattern, subject):
                    yield session, sid


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


class HealthQuestion(NamedTuple):
    """What is asked. Empty names ask for nothing in particular."""

    account: str = ""
    stream: str = ""
    consumer: str = ""
    jetstream_only: bool = False
    """Only whether JetStream is enabled."""
    details: bool = False
    """Say what is wrong as a list of records instead of a sentence."""


class _Trouble(NamedTuple):
    status: str
    code: int
    kind: str
    text: str


def healthz(hub: Monitored, asked: HealthQuestion | None = None) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the document: 200 while everything that was promised can be kept."""
    asked = asked or HealthQuestion()
    trouble = _of_broker(hub) or _of_question(asked) or _of_assets(hub, asked)
    if trouble is None:
        return 200, {"status": "ok"}
    if not asked.details:
        return trouble.code, {"status": trouble.status, "error": trouble.text}
    record: dict[str, Any] = {"type": trouble.kind}
    if trouble.kind in ("ACCOUNT", "STREAM", "CONSUMER"):
        record["account"] = asked.account
    if trouble.kind in ("STREAM", "CONSUMER"):
        record["stream"] = asked.stream
    if trouble.kind == "CONSUMER":
        record["consumer"] = asked.consumer
    return trouble.code, {"status": "error", "errors": [{**record, "error": trouble.text}]}


def _of_broker(hub: Monitored) -> _Trouble | None:
    if hub.is_shutting_down:
        return _Trouble("unavailable", 503, "CONN", "shutting down")
    if hub.storage_error is not None:
        return _Trouble("error", 503, "JETSTREAM", f"storage: {hub.storage_error}")
    return None


def _of_question(asked: HealthQuestion) -> _Trouble | None:
    """What is missing from the question itself."""
    for name, needed in (("stream", asked.consumer), ("account", asked.stream)):
        if needed and not getattr(asked, name):
            checked = "consumer" if name == "stream" else "stream"
            text = f'"{name}" must not be empty when checking {checked} health'
            return _Trouble("error", 400, "BAD_REQUEST", text)
    return None


def _of_assets(hub: Monitored, asked: HealthQuestion) -> _Trouble | None:
    if (asked.jetstream_only or asked.account) and not hub.accounts.engines:
        return _Trouble("unavailable", 503, "JETSTREAM", "JetStream is not enabled")
    if asked.jetstream_only or not asked.account:
        return None
    account = hub.accounts.get(asked.account)
    if account is None or account.engine is None:
        text = f'JetStream account "{asked.account}" not found'
        return _Trouble("unavailable", 404, "ACCOUNT", text)
    if not asked.stream:
        return None
    stream = account.engine.registry.streams.get(asked.stream)
    if stream is None:
        text = f'JetStream stream "{asked.stream}" not found on account "{asked.account}"'
        return _Trouble("unavailable", 404, "STREAM", text)
    if asked.consumer and asked.consumer not in stream.consumers:
        text = (
            f'JetStream consumer "{asked.consumer}" not found for stream "{asked.stream}" '
            f'on account "{asked.account}"'
        )
        return _Trouble("unavailable", 404, "CONSUMER", text)
    return None
