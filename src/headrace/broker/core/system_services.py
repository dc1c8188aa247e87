"""What the broker answers about itself: ``$SYS.REQ.…``, as ``nats server`` commands ask it.

In every account ``$SYS.REQ.USER.INFO`` tells who one is. In the system account ``$SYS.REQ.SERVER.PING``
and its like, with the id of this server in the place of ``PING``, give the documents of monitoring, and
``$SYS.REQ.ACCOUNT.<name>.…`` those of one account. What it hears unasked are ``events``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...api.times import format_time
from ...errors import ConfigurationError
from . import (
    hub_monitor,
    hub_monitor_accounts,
    hub_monitor_connections,
    hub_monitor_topology,
)
from .account_events import AccountEvents
from .hub_options import COMPATIBLE_VERSION
from .permissions import written

if TYPE_CHECKING:
    from .accounts import Account
    from .hub import Hub
    from .permissions import Permissions
    from .ports import Origin

__all__ = ["SystemServices"]

_USER_INFO: Final = b"$SYS.REQ.USER.INFO"
_SERVER: Final = b"$SYS.REQ.SERVER.>"
_ACCOUNT: Final = b"$SYS.REQ.ACCOUNT.>"

Options = dict[str, Any]


class SystemServices:
    """The sinks of one hub; ``join`` is called for each account."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._serving: Account | None = None
        self._joined: set[Account] = set()
        self._sequence = 0
        self.events = AccountEvents(hub, lambda: self._serving, self._server_info)
        self._server_pages: dict[str, Callable[[Options], Any]] = {
            "VARZ": lambda said: hub_monitor.varz(hub),
            "CONNZ": self._connz,
            "JSZ": self._jsz,
            "SUBSZ": lambda said: hub_monitor_accounts.subsz(
                hub, listed=_on(said, "subscriptions")
            ),
            "ACCOUNTZ": lambda said: hub_monitor_accounts.accountz(hub, _text(said, "account")),
            "ACCSTATZ": lambda said: hub_monitor_accounts.accstatz(hub, unused=_on(said, "unused")),
            "ROUTEZ": lambda said: hub_monitor_topology.routez(hub),
            "GATEWAYZ": lambda said: hub_monitor_topology.gatewayz(hub),
            "LEAFZ": lambda said: hub_monitor_topology.leafz(hub),
            "HEALTHZ": lambda said: hub_monitor.healthz(hub)[1],
            "IDZ": lambda said: {
                "name": hub.server_name,
                "host": hub.options.host,
                "id": hub.server_id,
            },
        }

    def join(self, account: Account) -> None:
        """Tell this account's users who they are."""
        if account not in self._joined:
            self._joined.add(account)
            account.router.add_sink(_USER_INFO, partial(self._user_info, account))

    def serve(self, account: Account) -> None:
        """Answer about the server in this account, and no longer in the one before."""
        before, self._serving = self._serving, account
        if before is account:
            return
        for pattern, sink in ((_SERVER, self._server), (_ACCOUNT, self._account)):
            if before is not None:
                before.router.remove_sink(pattern, sink)
            account.router.add_sink(pattern, sink)

    def _user_info(
        self,
        account: Account,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        origin: Origin | None,
    ) -> None:
        session = None if origin is None else self._hub.sessions.get(origin.client_id)
        if session is None or session.account is not account:
            return
        identity = session.identity
        data: dict[str, Any] = {
            "user": identity.name,
            "account": account.name,
            "account_name": account.name,
        }
        if identity.permissions is not None:
            data["permissions"] = _permissions(identity.permissions)
        if identity.until_ns:
            left_ns = max(0, identity.until_ns - self._hub.clock.now_ns())
            data["expires"] = left_ns
        self._reply(account, reply, {"data": {k: v for k, v in data.items() if v}})

    def _server(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        tokens = subject.decode(errors="replace").split(".")[3:]
        if tokens[0] not in ("PING", self._hub.server_id) or len(tokens) > 2:
            return False
        if len(tokens) == 1:
            self._answer(reply, "statsz", self._statsz({}))
            return True
        page = self._server_pages.get(tokens[1], self._statsz if tokens[1] == "STATSZ" else None)
        if page is None:
            return False
        key = "statsz" if tokens[1] == "STATSZ" else "data"
        try:
            self._answer(reply, key, page(_options(payload)))
        except ConfigurationError as error:
            self._answer(reply, "error", {"code": 400, "description": str(error)})
        return True

    def _account(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        *name, page = subject.decode(errors="replace").split(".")[3:]
        account = ".".join(name)
        if (account, page) == ("PING", "STATZ"):
            unused = _on(_options(payload), "unused")
            self._answer(reply, "data", hub_monitor_accounts.accstatz(self._hub, unused=unused))
            return True
        found = self._hub.accounts.get(account) if account else None
        if found is None:
            return False
        said = {**_options(payload), "account": account, "acc": account}
        pages: dict[str, Callable[[], Any]] = {
            "INFO": lambda: hub_monitor_accounts.accountz(self._hub, account),
            "CONNZ": lambda: self._connz(said),
            "JSZ": lambda: self._jsz(said),
            "SUBSZ": lambda: hub_monitor_accounts.subsz(self._hub, name=account, listed=True),
            "CONNS": lambda: hub_monitor_accounts.traffic_of(self._hub, found),
        }
        if page not in pages:
            return False
        try:
            self._answer(reply, "data", pages[page]())
        except ConfigurationError as error:
            self._answer(reply, "error", {"code": 400, "description": str(error)})
        return True

    def _connz(self, said: Options) -> dict[str, Any]:
        detail = _on(said, "subscriptions_detail")
        return hub_monitor_connections.connz(
            self._hub,
            offset=_number(said, "offset", 0),
            limit=_number(said, "limit", hub_monitor_connections.CONNECTIONS_PER_PAGE),
            cid=_number(said, "cid", 0),
            account=_text(said, "acc"),
            user=_text(said, "user"),
            sort=_text(said, "sort"),
            state=str(_number(said, "state", 0)),
            subscriptions="detail" if detail else "list" if _on(said, "subscriptions") else "",
        )

    def _jsz(self, said: Options) -> dict[str, Any]:
        return hub_monitor.jsz(
            self._hub,
            account=_text(said, "account"),
            accounts=_on(said, "accounts"),
            streams=_on(said, "streams"),
            consumers=_on(said, "consumer"),
            config=_on(said, "config"),
        )

    def _statsz(self, said: Options) -> dict[str, Any]:
        found = hub_monitor.varz(self._hub)
        names = ("start", "connections", "total_connections", "subscriptions", "slow_consumers")
        return {
            **{name: found[name] for name in names},
            "active_servers": 1,
            "active_accounts": sum(1 for account in self._hub.accounts if account.connections),
            "sent": {"msgs": found["out_msgs"], "bytes": found["out_bytes"]},
            "received": {"msgs": found["in_msgs"], "bytes": found["in_bytes"]},
            "jetstream": found["jetstream"],
        }

    def _answer(self, reply: bytes, key: str, content: Any) -> None:
        assert self._serving is not None, "it was asked there"
        self._reply(self._serving, reply, {key: content})

    def _reply(self, account: Account, reply: bytes, content: dict[str, Any]) -> None:
        if reply:
            document = {"server": self._server_info(), **content}
            account.router.publish(reply, b"", b"", msgspec.json.encode(document))

    def _server_info(self) -> dict[str, Any]:
        """Who says it; counted, so that a listener knows when it missed something."""
        hub = self._hub
        self._sequence += 1
        return {
            "name": hub.server_name,
            "host": hub.options.host,
            "id": hub.server_id,
            "ver": COMPATIBLE_VERSION,
            "jetstream": hub.storage is not None,
            "seq": self._sequence,
            "time": format_time(hub.clock.now_ns()),
        }


def _options(payload: bytes) -> Options:
    """What a request asks for; one that cannot be read asks for nothing special."""
    try:
        return msgspec.json.decode(payload, type=Options)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _number(said: Options, name: str, default: int) -> int:
    value = said.get(name, default)
    return value if isinstance(value, int) else default


def _text(said: Options, name: str) -> str:
    value = said.get(name, "")
    return value if isinstance(value, str) else ""


def _on(said: Options, name: str) -> bool:
    return said.get(name) is True


def _permissions(granted: Permissions) -> dict[str, Any]:
    """As a configuration says them."""
    found: dict[str, Any] = {}
    rules = {
        ("publish", "allow"): written(granted.publish_allow),
        ("publish", "deny"): written(granted.publish_deny),
        ("subscribe", "allow"): written(granted.subscribe_allow, granted.queues_allow),
        ("subscribe", "deny"): written(granted.subscribe_deny, granted.queues_deny),
    }
    for (verb, verdict), entries in rules.items():
        if entries:
            found.setdefault(verb, {})[verdict] = entries
    if granted.responses is not None:
        answers = granted.responses
        found["responses"] = {"max": answers.messages_max, "ttl": answers.expires_ns}
    return found
