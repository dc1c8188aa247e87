"""What monitoring shows of accounts, their streams and their subscriptions, as nats-server's endpoints.

As in ``hub_monitor``: JSON-ready, without secrets, and of no cost while nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ...api.times import format_time
from .accounts import Account
from .hub import Hub

if TYPE_CHECKING:
    from .session import Session
    from .subscription import Subscription

__all__ = ["account_details", "accountz", "subsz"]

PER_PAGE: Final = 1024


def accountz(hub: Hub, name: str = "") -> dict[str, Any] | None:
    """The names of all accounts, or the account of this name; None if there is none."""
    document: dict[str, Any] = {
        "server_id": hub.server_id,
        "now": format_time(hub.clock.now_ns()),
        "system_account": hub.accounts.system_name,
    }
    if not name:
        return {**document, "accounts": sorted(account.name for account in hub.accounts)}
    account = hub.accounts.get(name)
    return None if account is None else {**document, "account_detail": _account(account)}


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
    hub: Hub,
    name: str = "",
    *,
    streams: bool = False,
    consumers: bool = False,
    config: bool = False,
) -> list[dict[str, Any]]:
    """JetStream by account: what each uses, and its streams and consumers when asked for."""
    details: list[dict[str, Any]] = []
    for account in hub.accounts:
        engine = account.engine
        if engine is None or (name and account.name != name):
            continue
        snapshot = engine.snapshot()
        detail: dict[str, Any] = {
            "name": account.name,
            "id": account.name,
            **{
                key: snapshot[key]
                for key in ("memory", "storage", "reserved_memory", "reserved_storage", "api")
            },
        }
        if streams or consumers:
            detail["stream_detail"] = engine.details(consumers=consumers, config=config)
        details.append(detail)
    return details


def subsz(
    hub: Hub, *, name: str = "", listed: bool = False, offset: int = 0, limit: int = PER_PAGE
) -> dict[str, Any]:
    """How many subscriptions there are, and a page of them when ``listed``."""
    offset, limit = max(0, offset), max(1, min(limit, PER_PAGE))
    accounts = [account for account in hub.accounts if not name or account.name == name]
    count = sum(account.router.subscriptions for account in accounts)
    document: dict[str, Any] = {
        "server_id": hub.server_id,
        "now": format_time(hub.clock.now_ns()),
        "num_subscriptions": count,
        "num_cache": sum(len(account.router.exact) for account in accounts),
        "total": count if listed else 0,
        "offset": offset,
        "limit": limit,
    }
    if listed:
        page = islice(_subscriptions(hub, accounts), offset, offset + limit)
        document["subscriptions_list"] = [_subscription(*found) for found in page]
    return document


def _subscriptions(
    hub: Hub, accounts: list[Account]
) -> Iterator[tuple[Session, bytes, Subscription]]:
    for session in hub.sessions.values():
        if session.account in accounts:
            for sid, subscription in session.subscriptions.items():
                yield session, sid, subscription


def _subscription(session: Session, sid: bytes, subscription: Subscription) -> dict[str, Any]:
    document: dict[str, Any] = {
        "account": session.account.name,
        "subject": subscription.pattern.decode(errors="backslashreplace"),
        "sid": sid.decode(errors="backslashreplace"),
        "msgs": subscription.delivered,
        "cid": session.client_id,
    }
    if subscription.queue:
        document["qgroup"] = subscription.queue.decode(errors="backslashreplace")
    if subscription.messages_max >= 0:
        document["max"] = subscription.messages_max
    return document
