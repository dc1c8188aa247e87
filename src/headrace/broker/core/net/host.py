"""What a session asks of the hub it belongs to, and of the accounts there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ....clock import SteadyClock
    from ..account_options import AccountOptions
    from ..auth.authentication import Authenticator
    from ..auth.passwords import SlowDecisions
    from ..budget import Budget
    from ..options import HubOptions
    from ..ports.bus import Timers
    from .output import Output
    from .router import Router
    from .session import Session
    from .session_subscriptions import Leaving


class HostedAccount(Protocol):
    """The account a session belongs to; see ``accounts.accounts.Account``."""

    name: str
    router: Router
    connections: int
    """Kept by the sessions."""

    @property
    def options(self) -> AccountOptions: ...
    @property
    def is_full(self) -> bool: ...


class HostedAccounts(Protocol):
    """Where a session finds its account; see ``accounts.accounts.Accounts``."""

    @property
    def default(self) -> HostedAccount: ...
    def get(self, name: str) -> HostedAccount | None: ...


class Host(Protocol):
    """Implemented by the hub."""

    authenticator: Authenticator
    budget: Budget
    clock: SteadyClock
    decisions: SlowDecisions
    leaving: Leaving
    options: HubOptions
    server_name: str
    touched: list[Output[Session]]
    """Outputs with something in them; always the same list."""

    @property
    def accounts(self) -> HostedAccounts: ...

    @property
    def timers(self) -> Timers: ...

    def info(self, session: Session, *, entered: bool = False) -> bytes:
        """The INFO document for one client; one that has ``entered`` learns which account it is in."""

    def entered(self, session: Session) -> None:
        """A client has logged in."""

    def ended(self, session: Session) -> None:
        """A session is over."""
