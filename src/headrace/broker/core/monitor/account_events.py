"""Events for the system account: clients that logged in, left, or were refused.

No event is made unless somebody listens. ``sent`` and ``received`` count as in monitoring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ....api.times import format_time
from ..accounts.accounts import Account
from ..net.session import HostedAccount, Session
from .accounts import traffic_of
from .monitored import Monitored

_TYPE: Final = "io.nats.server.advisory.v1."
_REFUSED: Final = "Authentication Failure"


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
