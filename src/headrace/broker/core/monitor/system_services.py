"""Answers requests about the broker itself (``$SYS.REQ.…``), as ``nats server`` commands send them.

In every account ``$SYS.REQ.USER.INFO`` tells clients who they are. In the system account
``$SYS.REQ.SERVER.PING`` and its like, with the id of this server in the place of ``PING``, give the
documents of monitoring, and ``$SYS.REQ.ACCOUNT.<name>.…`` those of one account. ``events`` are sent without
a request.

``AccountEvents`` tell the system account of clients that logged in, left, or were refused. No event is
made unless somebody listens. ``sent`` and ``received`` count as in monitoring.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from ....api.base import DocumentError, read_typed
from ....api.times import format_time
from ....errors import ConfigurationError
from ..accounts.accounts import Account
from ..auth.permissions import Permissions, written
from ..net.session import HostedAccount, Session
from ..options import COMPATIBLE_VERSION
from ..ports import Origin
from . import connections, server
from .connections import Monitored
from .server import HealthQuestion, healthz, traffic_of

_TYPE: Final = "io.nats.server.advisory.v1."
_REFUSED: Final = "Authentication Failure"
_USER_INFO: Final = b"$SYS.REQ.USER.INFO"
_SERVER: Final = b"$SYS.REQ.SERVER.>"
_ACCOUNT: Final = b"$SYS.REQ.ACCOUNT.>"
_ACCOUNT_PAGES: Final = frozenset({"INFO", "CONNZ", "JSZ", "SUBSZ", "CONNS", "STATZ"})


class AccountEvents:
    """``system`` gives the system account, ``server`` what events say of the server."""

    def __init__(
        self,
        hub: Monitored,
        system: Callable[[], Account | None],
        server: Callable[[], dict[str, Any]],
    ) -> None:
        self._hub = hub
        self._system = system
        self._server = server
        self._inside: set[int] = set()

    def entered(self, session: Session) -> None:
        """A client has logged in. A repeated CONNECT makes no event."""
        if session.client_id in self._inside:
            return
        self._inside.add(session.client_id)
        account = session.account
        self._tell_connections(account)
        self._tell(f"$SYS.ACCOUNT.{account.name}.CONNECT", "client_connect", self._about(session))

    def left(self, session: Session) -> None:
        """A client is gone, or was refused."""
        name = session.account.name
        subjects = [f"$SYS.ACCOUNT.{name}.DISCONNECT"]
        if session.client_id in self._inside:
            self._inside.discard(session.client_id)
            self._tell_connections(session.account)
        elif session.close_reason == _REFUSED:
            subjects.insert(0, f"$SYS.SERVER.{self._hub.server_id}.CLIENT.AUTH.ERR")
        else:
            return
        for subject in subjects:
            self._tell(subject, "client_disconnect", self._about(session, gone=True))

    def _about(self, session: Session, *, gone: bool = False) -> Callable[[], dict[str, Any]]:
        def fields() -> dict[str, Any]:
            client = session.describe()
            del client["server"]  # it stands beside the client
            if not gone:
                return {"client": client}
            client["stop"] = format_time(self._hub.clock.now_ns())
            return {
                "client": client,
                "sent": {"msgs": session.out_messages, "bytes": session.output.payload_bytes},
                "received": {"msgs": session.in_messages, "bytes": session.in_bytes},
                "reason": session.close_reason,
            }

        return fields

    def _tell_connections(self, account: HostedAccount) -> None:
        for subject in (
            f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS",
            f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS",
        ):
            self._tell(subject, "account_connections", lambda: traffic_of(self._hub, account))

    def _tell(self, subject: str, kind: str, fields: Callable[[], dict[str, Any]]) -> None:
        system = self._system()
        if system is None or not system.router.has_interest(subject.encode()):
            return
        document = {**self._head(kind), **fields()}
        system.router.publish(subject.encode(), b"", b"", msgspec.json.encode(document))

    def _head(self, kind: str) -> dict[str, Any]:
        hub = self._hub
        return {
            "type": _TYPE + kind,
            "id": f"{hub.random.getrandbits(88):022x}",
            "timestamp": format_time(hub.clock.now_ns()),
            "server": self._server(),
        }

    def connections_of(self, account: Account) -> dict[str, Any]:
        """The event for coming and going connections, for whoever asks in between."""
        return {**self._head("account_connections"), **traffic_of(self._hub, account)}


Options = dict[str, Any]


class SystemServices:
    """The sinks of one hub; ``join`` is called for each account."""

    def __init__(self, hub: Monitored) -> None:
        self._hub = hub
        self._serving: Account | None = None
        self._joined: set[Account] = set()
        self._sequence = 0
        self.events = AccountEvents(hub, lambda: self._serving, self._server_info)
        self._server_pages: dict[str, Callable[[Options], Any]] = {
            "VARZ": lambda said: server.varz(hub, hub.about_process()),
            "CONNZ": self._connz,
            "JSZ": self._jsz,
            "SUBSZ": self._subsz,
            "ACCOUNTZ": self._accountz,
            "ACCSTATZ": self._accstatz,
            "ROUTEZ": lambda said: server.routez(hub),
            "GATEWAYZ": lambda said: server.gatewayz(hub),
            "LEAFZ": lambda said: server.leafz(hub),
            "HEALTHZ": self._healthz,
            "STATSZ": self._statsz,
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
        if reply:  # what is not sent is not counted
            content = {"data": {k: v for k, v in data.items() if v}}
            self._send(reply, {"server": self._server_info(), **content}, account)

    def _server(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        tokens = subject.decode(errors="replace").split(".")[3:]
        if tokens[0] not in ("PING", self._hub.server_id) or len(tokens) > 2:
            return False
        name = tokens[1] if len(tokens) == 2 else "STATSZ"
        if name == "IDZ":  # before anything is known of a server, so without an envelope
            self._send(reply, {key: self._server_info()[key] for key in ("name", "host", "id")})
            return True
        page = self._server_pages.get(name)
        if page is None:
            return False
        said = self._understood(reply, payload)
        if said is not None and (tokens[0] != "PING" or self._is_meant(said)):
            self._give(reply, "statsz" if name == "STATSZ" else "data", lambda: page(said))
        return True

    def _understood(self, reply: bytes, payload: bytes) -> Options | None:
        """What a request asks for; None when it cannot be read, which is said."""
        try:
            return _options(payload)
        except ValueError as error:
            self._answer(reply, error={"code": 400, "description": str(error)})
            return None

    def _is_meant(self, said: Options) -> bool:
        """Whether a question to all servers is one to this one."""
        hub = self._hub
        exact = _on(said, "exact_match")
        for asked, ours in (
            (_text(said, "server_name"), hub.server_name),
            (_text(said, "host"), hub.options.host),
            (_text(said, "cluster"), ""),
        ):
            if asked and not (asked == ours if exact else asked in ours):
                return False
        domain = _text(said, "domain")
        # Tags are something we have none of.
        return not said.get("tags") and domain in ("", hub.options.domain)

    def _give(self, reply: bytes, key: str, make: Callable[[], Any]) -> None:
        """Answer with a page, or with why there is none."""
        try:
            content = {key: make()}
        except ConfigurationError as error:
            content = {"data": None, "error": {"code": 500, "description": str(error)}}
        self._answer(reply, **content)

    def _account(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        *name, page = subject.decode(errors="replace").split(".")[3:]
        account = ".".join(name)
        if not account or page not in _ACCOUNT_PAGES:
            return False
        asked = self._understood(reply, payload)
        found = self._hub.accounts.get(account)
        if asked is not None and page == "CONNS" and found is not None:
            self._send(reply, self.events.connections_of(found))
        elif asked is not None:
            said = {**asked, "account": account, "acc": account}
            self._give(reply, "data", lambda: self._account_page(account, page, said))
        return True

    def _account_page(self, name: str, page: str, said: Options) -> Any:
        if page == "STATZ":
            return self._accstatz({**said, "accounts": [name]} if name != "PING" else said)
        found = self._hub.accounts.get(name)
        if found is None:
            raise ConfigurationError(f"Account {name} does not exist")
        if page == "INFO":
            return self._accountz(said)["account_detail"]
        if page == "CONNZ":
            return self._connz(said)
        if page == "SUBSZ":
            return self._subsz({**said, "subscriptions": True})
        if found.engine is None:
            raise ConfigurationError(f'account "{name}" not jetstream enabled')
        return self._jsz(said)["account_details"][0]

    def _accstatz(self, said: Options) -> dict[str, Any]:
        unused = _on(said, "include_unused") or _on(
            said, "unused"
        )  # nats-server's name, and HTTP's
        return server.accstatz(self._hub, unused=unused, names=_texts(said, "accounts"))

    def _accountz(self, said: Options) -> dict[str, Any]:
        name = _text(said, "account")
        document = server.accountz(self._hub, name)
        if document is None:
            raise ConfigurationError(f"Account {name} does not exist")
        return document

    def _subsz(self, said: Options) -> dict[str, Any]:
        return server.subsz(
            self._hub,
            name=_text(said, "account"),
            listed=_on(said, "subscriptions"),
            test=_text(said, "test"),
            offset=_number(said, "offset", 0),
            limit=_number(said, "limit", server.PER_PAGE),
        )

    def _healthz(self, said: Options) -> dict[str, Any]:
        question = HealthQuestion(
            account=_text(said, "account"),
            stream=_text(said, "stream"),
            consumer=_text(said, "consumer"),
            jetstream_only=_on(said, "js-enabled-only") or _on(said, "js-server-only"),
            details=_on(said, "details"),
        )
        code, document = healthz(self._hub, question)
        return {"status": document.pop("status"), "status_code": code, **document}

    def _connz(self, said: Options) -> dict[str, Any]:
        detail = _on(said, "subscriptions_detail")
        return connections.connz(
            self._hub,
            offset=_number(said, "offset", 0),
            limit=_number(said, "limit", connections.CONNECTIONS_PER_PAGE),
            cid=_number(said, "cid", 0),
            account=_text(said, "acc"),
            user=_text(said, "user"),
            sort=_text(said, "sort"),
            state=str(_number(said, "state", 0)),
            subject=_text(said, "filter_subject"),
            subscriptions="detail" if detail else "list" if _on(said, "subscriptions") else "",
        )

    def _jsz(self, said: Options) -> dict[str, Any]:
        return server.jsz(
            self._hub,
            account=_text(said, "account"),
            accounts=_on(said, "accounts"),
            streams=_on(said, "streams"),
            consumers=_on(said, "consumer"),
            config=_on(said, "config"),
            offset=_number(said, "offset", 0),
            limit=_number(said, "limit", 0),
        )

    def _statsz(self, said: Options) -> dict[str, Any]:
        found = server.varz(self._hub)
        names = ("start", "connections", "total_connections", "subscriptions", "slow_consumers")
        return {
            **{name: found[name] for name in names},
            **{k: v for k, v in self._hub.about_process().items() if k in ("mem", "cores", "cpu")},
            "active_servers": 1,
            "active_accounts": sum(1 for account in self._hub.accounts if account.connections),
            "sent": {"msgs": found["out_msgs"], "bytes": found["out_bytes"]},
            "received": {"msgs": found["in_msgs"], "bytes": found["in_bytes"]},
            "jetstream": found["jetstream"],
        }

    def _answer(self, reply: bytes, **content: Any) -> None:
        self._send(reply, {"server": self._server_info(), **content})

    def _send(self, reply: bytes, document: dict[str, Any], account: Account | None = None) -> None:
        """Answer in the account that asks: the system account, if it is not another one."""
        account = account or self._serving
        assert account is not None, "it was asked there"
        if reply:
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
    """What a request asks for; an empty one asks for nothing special. Raises ValueError."""
    if not payload:
        return {}
    try:
        return read_typed(payload, Options)
    except DocumentError as error:
        raise ValueError(f"the request is no JSON object: {error}") from None


def _number(said: Options, name: str, default: int) -> int:
    value = said.get(name, default)
    return value if isinstance(value, int) else default


def _text(said: Options, name: str) -> str:
    value = said.get(name, "")
    return value if isinstance(value, str) else ""


def _texts(said: Options, name: str) -> set[str]:
    value = said.get(name)
    return {item for item in value if isinstance(item, str)} if isinstance(value, list) else set()


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
