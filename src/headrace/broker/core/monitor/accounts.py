"""Monitoring of accounts, their streams and their subscriptions, in the shapes of nats-server.

As in ``server``: JSON-ready, without secrets, free of cost while nobody asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final

from ....errors import ConfigurationError
from ....subjects import is_valid_subject, matches
from ..accounts.accounts import Account
from ..net.session import HostedAccount, Session
from ..options import COMPATIBLE_API_LEVEL
from .connections import head_of, subscription_detail
from .monitored import Monitored

PER_PAGE: Final = 1024


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
